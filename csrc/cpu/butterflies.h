// SPDX-License-Identifier: Apache-2.0
//
// Butterflies in registers: a + b and a - b of elements some distance apart, the longest distance first.
#ifndef EAGLE3_QUAROT_CPU_BUTTERFLIES_H_
#define EAGLE3_QUAROT_CPU_BUTTERFLIES_H_

#include "vector.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

constexpr auto kLaneIndices = std::make_integer_sequence<int, kLanes>();

#if defined(__FMA__)
constexpr bool kHasFusedProducts = true;
#else
constexpr bool kHasFusedProducts = false;
#endif

// 1, of which the compiler does not know that a product with it can be left out.
EAGLE3_QUAROT_INLINE Vector HiddenOne() {
  Vector one = Broadcast(1.0f);
#if defined(__FMA__)
  asm("" : "+x"(one));
#endif
  return one;
}

// `one` is 1 where differences are to be products and sums in one, else nothing is multiplied: some
// processors (Zen 4) have units of their own for additions and for products, and a pass of additions
// alone leaves the latter idle.
template <bool kWithProducts, int kCount, int kDistance = kCount / 2>
EAGLE3_QUAROT_INLINE void VectorButterflies(Vector (&v)[kCount], Vector one) {
  if constexpr (kDistance > 0) {
#pragma GCC unroll 16
    for (int pair = 0; pair < kCount / 2; ++pair) {
      const int low = pair / kDistance * (2 * kDistance) + pair % kDistance;
      const Vector a = v[low];
      const Vector b = v[low + kDistance];
      v[low] = a + b;
      v[low + kDistance] = kWithProducts ? a - b * one : a - b;
    }
    VectorButterflies<kWithProducts, kCount, kDistance / 2>(v, one);
  }
}

// Distances kLanes / 2 ... 1, those below `power` only.
template <int kDistance = kLanes / 2>
EAGLE3_QUAROT_INLINE Vector LaneButterflies(Vector value, int64_t power) {
  if constexpr (kDistance > 0) {
    if (kDistance < power) value = LaneButterfly<kDistance>(value, kLaneIndices);
    return LaneButterflies<kDistance / 2>(value, power);
  } else {
    return value;
  }
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_BUTTERFLIES_H_
