// SPDX-License-Identifier: Apache-2.0
//
// Once per call: bring the small factor into the form that the kernels read.
#include <cstring>

#include "row_transform.h"

namespace eagle3_quarot {
namespace cpu {
namespace {

// The loops below run on every call, so they compare bit patterns without leaving early: that is what
// compilers vectorise. Order 160 takes a few microseconds.

constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kOne = 0x3f800000u;

uint32_t BitsOf(const float& value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

bool AllSigns(const float* values, int64_t count) {
  uint32_t difference = 0;
  for (int64_t i = 0; i < count; ++i) difference |= (BitsOf(values[i]) & ~kSignBit) ^ kOne;
  return difference == 0;
}

// F = H_2 (x) F': the four quarters are F', F', F', -F'. For a matrix of +-1.
bool SplitsInHalves(const float* values, int64_t order) {
  if (order % 2 != 0) return false;
  const int64_t half = order / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float* upper = values + i * order;
    const float* lower = values + (i + half) * order;
    uint32_t difference = 0;
    for (int64_t j = 0; j < half; ++j) {
      const uint32_t entry = BitsOf(upper[j]);
      difference |= (entry ^ BitsOf(upper[j + half])) | (entry ^ BitsOf(lower[j])) |
                    (entry ^ BitsOf(lower[j + half]) ^ kSignBit);
    }
    if (difference != 0) return false;
  }
  return true;
}

// The codes of `order` rows and columns of a matrix: see SmallFactor.
template <bool kTransposed>
void MakeCodes(const float* values, int64_t stride, int64_t order, uint8_t* codes) {
  for (int64_t first = 0; first < order; first += 4, codes += order) {
    const int64_t count = order - first < 4 ? order - first : 4;
    for (int64_t q = 0; q < count; ++q) {
      const float* entry = kTransposed ? values + (first + q) * stride : values + first + q;
      for (int64_t i = 0; i < order; ++i) {
        const uint32_t negative = BitsOf(entry[kTransposed ? i : i * stride]) >> 31;
        if (q == 0) {
          codes[i] = static_cast<uint8_t>(negative * SmallFactor::kSubtract);
        } else {
          const uint32_t differs = negative ^ (codes[i] / SmallFactor::kSubtract);
          codes[i] = static_cast<uint8_t>(codes[i] | (differs << (q - 1)) * SmallFactor::kCodeStep);
        }
      }
    }
  }
}

SmallFactor MakeFactor(const float* values, int64_t order, int64_t power, Direction direction) {
  SmallFactor factor;
  const bool transposed = direction == Direction::kRotate;
  factor.order = order;
  factor.values = values;
  factor.row_stride = transposed ? 1 : order;
  factor.column_stride = transposed ? order : 1;
  // Order 1 is no sign code but the number 1, which the kernels leave out.
  factor.is_signs = order == 1 ? values[0] == 1.0f : AllSigns(values, order * order);
  if (!factor.is_signs || order == 1) return factor;
  // The halves are computed side by side, which runs shorter than a vector do not allow: their vectors
  // reach into the next rows. Below order 16 the second set of sums costs more than it saves.
  if (order >= 16 && power >= kMaxLanes && SplitsInHalves(values, order)) {
    factor.halves = 2;
    factor.order = order / 2;
  }
  factor.codes.resize(factor.Groups() * factor.order);
  (transposed ? MakeCodes<true> : MakeCodes<false>)(values, order, factor.order,
                                                    factor.codes.data());
  return factor;
}

}  // namespace

Transform MakeTransform(int64_t order, int64_t power, const float* signs, const float* factor,
                        Direction direction) {
  Transform transform;
  transform.block = order * power;
  transform.order = order;
  transform.power = power;
  (direction == Direction::kRotate ? transform.before : transform.after) = signs;
  transform.factor = MakeFactor(factor, order, power, direction);
  return transform;
}

int64_t ScratchFloats(const Transform& transform) {
  // Two blocks (before and after the factor) and the sums of two vectors of columns, 8 per group.
  return 2 * transform.PaddedBlock() + transform.factor.Groups() * 16 * kMaxLanes;
}

}  // namespace cpu
}  // namespace eagle3_quarot
