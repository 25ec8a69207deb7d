// SPDX-License-Identifier: Apache-2.0
//
// RMSNorm of an fp32 row, rounded where vLLM's RMSNorm.forward_native rounds.
#ifndef EAGLE3_QUAROT_CPU_RMS_NORM_H_
#define EAGLE3_QUAROT_CPU_RMS_NORM_H_

#include <type_traits>

#include "storage.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

inline float MeanSquare(const float* x, int64_t size) {
  constexpr int kSumsAtOnce = 4;
  Vector sums[kSumsAtOnce] = {};
  int64_t i = 0;
  for (; i + kSumsAtOnce * kLanes <= size; i += kSumsAtOnce * kLanes) {
#pragma GCC unroll 4
    for (int r = 0; r < kSumsAtOnce; ++r) {
      const Vector value = Load(x + i + r * kLanes);
      sums[r] += value * value;
    }
  }
  const Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  for (; i < size; ++i) total += x[i] * x[i];
  return total / static_cast<float>(size);
}

template <class Gamma, class T>
void RmsNormRow(const float* x, int64_t size, const Gamma* gamma, float eps, T* target) {
  const Vector scale = Broadcast(1.0f / __builtin_sqrtf(MeanSquare(x, size) + eps));
  const auto normalise = [scale](Vector value, Vector weight) {
    const Vector product = RoundTo(Gamma{}, value * scale) * weight;
    return WithoutPayloads(std::is_same<Gamma, T>::value ? product : RoundTo(Gamma{}, product));
  };
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store(target + i, normalise(Load(x + i), Load(gamma + i)));
  }
  if (i < size) {
    const int64_t count = size - i;
    StorePart(target + i, normalise(LoadPart(x + i, count), LoadPart(gamma + i, count)), count);
  }
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_RMS_NORM_H_
