// SPDX-License-Identifier: Apache-2.0
//
// The fast Walsh-Hadamard transform of every run of m channels, natural order, in fp32.
//
// A butterfly of distance d combines elements i and i + d for d = 1, 2, ..., m / 2. The order of the
// distances does not matter, so they are taken in groups that fit the registers, one pass over the
// block per group:
//
//   first pass   distances 1 ... kLanes / 2 inside vectors, then between kRadix adjacent vectors;
//                it also reads the row (any dtype) and applies the factors before the transform
//   other passes distances between up to kRadix vectors that lie a power of two apart; the last one
//                applies the factors after the transform and writes the row, where nothing else follows
//
// With AVX-512, m = 4096 takes two passes: 12 distances = 4 + 4 | 4.
#ifndef EAGLE3_QUAROT_CPU_HADAMARD_H_
#define EAGLE3_QUAROT_CPU_HADAMARD_H_

#include "vector.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

constexpr auto kLaneIndices = std::make_integer_sequence<int, kLanes>();

// What is multiplied to the input of one block; null for nothing.
struct InputScales {
  const float* multiplier;
  const float* signs;
};

template <int kCount, int kDistance = 1>
EAGLE3_QUAROT_INLINE void VectorButterflies(Vector (&v)[kCount]) {
  if constexpr (kDistance < kCount) {
#pragma GCC unroll 16
    for (int pair = 0; pair < kCount / 2; ++pair) {
      const int low = pair / kDistance * (2 * kDistance) + pair % kDistance;
      const Vector a = v[low];
      const Vector b = v[low + kDistance];
      v[low] = a + b;
      v[low + kDistance] = a - b;
    }
    VectorButterflies<kCount, 2 * kDistance>(v);
  }
}

// Distances 1 ... kLanes / 2, those below `power` only.
template <int kDistance = 1>
EAGLE3_QUAROT_INLINE Vector LaneButterflies(Vector value, int64_t power) {
  if constexpr (kDistance < kLanes) {
    if (kDistance >= power) return value;
    return LaneButterflies<2 * kDistance>(LaneButterfly<kDistance>(value, kLaneIndices), power);
  } else {
    return value;
  }
}

EAGLE3_QUAROT_INLINE Vector Scale(Vector value, InputScales scales, int64_t i) {
  if (scales.multiplier != nullptr) value *= Load(scales.multiplier + i);
  if (scales.signs != nullptr) value *= Load(scales.signs + i);
  return value;
}

// Memory to fetch while a block is transformed: what will be read after it, and where it will be
// written, in strides that no hardware prefetcher foresees.
template <class T>
struct Upcoming {
  const T* reads;
  const T* writes;
};

// Into the second-level cache: the first one is full of the block and its factors.
template <int kCount, class T>
EAGLE3_QUAROT_INLINE void Fetch(const T* memory) {
  const char* bytes = reinterpret_cast<const char*>(memory);
#pragma GCC unroll 16
  for (int i = 0; i < static_cast<int>(kCount * sizeof(T)); i += kLine) {
    __builtin_prefetch(bytes + i, 0, 2);
  }
}

template <int kCount, bool kScaled, class T>
EAGLE3_QUAROT_INLINE void ReadAndTransform(const T* source, float* block, int64_t size,
                                           InputScales scales, Upcoming<T> upcoming) {
  for (int64_t start = 0; start < size; start += kCount * kLanes) {
    Fetch<kCount * kLanes>(upcoming.reads + start);
    Fetch<kCount * kLanes>(upcoming.writes + start);
    Vector v[kCount];
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) {
      const int64_t i = start + r * kLanes;
      const Vector value = Load(source + i);
      v[r] = LaneButterflies(kScaled ? Scale(value, scales, i) : value, kLanes);
    }
    VectorButterflies(v);
#pragma GCC unroll 16
    for (int r = 0; r < kCount; ++r) Store(block + start + r * kLanes, v[r]);
  }
}

// Reads `size` elements, a multiple of kCount vectors.
template <int kCount, class T>
void FirstPass(const T* source, float* block, int64_t size, InputScales scales,
               Upcoming<T> upcoming) {
  if (scales.multiplier == nullptr && scales.signs == nullptr) {
    ReadAndTransform<kCount, false>(source, block, size, scales, upcoming);
  } else {
    ReadAndTransform<kCount, true>(source, block, size, scales, upcoming);
  }
}

// The same for runs shorter than a vector and for sizes that are no multiple of one. The lanes
// behind the end become zero.
template <class T>
void FirstPassOfShortRuns(const T* source, float* block, int64_t size, int64_t power,
                          InputScales scales) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store(block + i, LaneButterflies(Scale(Load(source + i), scales, i), power));
  }
  if (i < size) {
    Vector value = LoadPart(source + i, size - i);
    if (scales.multiplier != nullptr) value *= LoadPart(scales.multiplier + i, size - i);
    if (scales.signs != nullptr) value *= LoadPart(scales.signs + i, size - i);
    Store(block + i, LaneButterflies(value, power));
  }
}

// How far the first pass reaches where runs are long enough.
constexpr int64_t kFirstReach = kRadix * kLanes;

template <int kCount, bool kScaled, class T>
EAGLE3_QUAROT_INLINE void TransformStrided(const float* block, T* target, int64_t size,
                                           int64_t distance, const float* scale) {
  [[maybe_unused]] HalfBits lower[kCount];  // of lines whose upper halves come next
  for (int64_t outer = 0; outer < size; outer += kCount * distance) {
    for (int64_t start = outer; start < outer + distance; start += kLanes) {
      Vector v[kCount];
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) v[r] = Load(block + start + r * distance);
      VectorButterflies(v);
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) {
        const int64_t i = start + r * distance;
        if (kScaled) v[r] *= Load(scale + i);
        if constexpr (kIsStreamed<T>) {
          const HalfBits half = Narrow(T{}, v[r]);
          if (start / kLanes % 2 == 0) {
            lower[r] = half;
          } else {
            StoreLine(target + i - kLanes, lower[r], half);
          }
        } else {
          Store(target + i, v[r]);
        }
      }
    }
  }
}

// Butterflies between kCount vectors `distance` apart. `block` and `target` may be the same memory.
// The usual distance is a constant to the compiler: else every vector needs an address of its own,
// more than there are registers.
template <int kCount, class T>
void Pass(const float* block, T* target, int64_t size, int64_t distance, const float* scale) {
  if (scale == nullptr) {
    TransformStrided<kCount, false>(block, target, size, distance, scale);
  } else if (distance == kFirstReach) {
    TransformStrided<kCount, true>(block, target, size, kFirstReach, scale);
  } else {
    TransformStrided<kCount, true>(block, target, size, distance, scale);
  }
}

// No butterflies left: scale and write.
template <class T>
void WriteRow(const float* block, T* target, int64_t size, const float* scale) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Vector value = Load(block + i);
    if (scale != nullptr) value *= Load(scale + i);
    Store(target + i, value);
  }
  if (i < size) {
    Vector value = LoadPart(block + i, size - i);
    if (scale != nullptr) value *= LoadPart(scale + i, size - i);
    StorePart(target + i, value, size - i);
  }
}

template <class T>
EAGLE3_QUAROT_INLINE void PassOf(int64_t count, const float* block, T* target, int64_t size,
                                 int64_t distance, const float* scale) {
  switch (count) {
    case 2: return Pass<2>(block, target, size, distance, scale);
    case 4: return Pass<4>(block, target, size, distance, scale);
    case 8: return Pass<8>(block, target, size, distance, scale);
    default: return Pass<kRadix>(block, target, size, distance, scale);
  }
}

// Reads a block and does the distances that fit the first pass. Returns the next distance.
template <class T>
int64_t ReadBlock(const T* source, float* block, int64_t size, int64_t power, InputScales scales,
                  Upcoming<T> upcoming) {
  if (power < kLanes) {
    FirstPassOfShortRuns(source, block, size, power, scales);
    return power;
  }
  const int64_t vectors = power / kLanes;
  const int64_t count = vectors < kRadix ? vectors : kRadix;
  switch (count) {
    case 1: FirstPass<1>(source, block, size, scales, upcoming); break;
    case 2: FirstPass<2>(source, block, size, scales, upcoming); break;
    case 4: FirstPass<4>(source, block, size, scales, upcoming); break;
    case 8: FirstPass<8>(source, block, size, scales, upcoming); break;
    default: FirstPass<kRadix>(source, block, size, scales, upcoming); break;
  }
  return count * kLanes;
}

// Vectors to combine in the next pass: the remaining distances spread evenly over as few passes as
// the registers allow.
EAGLE3_QUAROT_INLINE int64_t NextCount(int64_t distance, int64_t power) {
  int64_t passes = 0;
  for (int64_t reach = distance; reach < power; reach *= kRadix) ++passes;
  int64_t count = 2;
  for (;; count *= 2) {
    int64_t reach = distance;
    for (int64_t pass = 0; pass < passes; ++pass) reach *= count;
    if (reach >= power) break;
  }
  const int64_t left = power / distance;
  return count < left ? count : left;
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_HADAMARD_H_
