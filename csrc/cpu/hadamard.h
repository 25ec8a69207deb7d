// SPDX-License-Identifier: Apache-2.0
//
// The fast Walsh-Hadamard transform of every run of m channels, natural order, in fp32.
//
// A butterfly of distance d combines elements i and i + d for d = m / 2, ..., 2, 1. The distances are
// taken in groups that fit the registers, one pass over the block per group:
//
//   strided passes   distances between up to kRadix vectors that lie a power of two apart
//   contiguous pass  distances between up to kRadix adjacent vectors, then kLanes / 2 ... 1 inside them
//
// The first pass reads the row (any dtype) and applies the factors before the transform. The last one
// is the contiguous one: it applies the factors after the transform and writes the row from end to end,
// line by line, where nothing else follows.
//
// With AVX-512, m = 4096 takes two passes: 12 distances = 4 | 4 + 4. Every instruction set takes the
// distances in the same order, so all give the same bits.
#ifndef EAGLE3_QUAROT_CPU_HADAMARD_H_
#define EAGLE3_QUAROT_CPU_HADAMARD_H_

#include "butterflies.h"
#include "fetch.h"
#include "storage.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

// How far the contiguous pass reaches where runs are long enough.
constexpr int kReach = kRadix * kLanes;

// What is multiplied to the input of one block; null for nothing.
struct InputScales {
  const float* multiplier;
  const float* signs;

  bool None() const { return multiplier == nullptr && signs == nullptr; }
};

EAGLE3_QUAROT_INLINE Vector Scale(Vector value, InputScales scales, int64_t i) {
  if (scales.multiplier != nullptr) value *= WithoutPayloads(Load(scales.multiplier + i));
  if (scales.signs != nullptr) value *= Load(scales.signs + i);
  return value;
}

// Part kPart of kCount pairs of vectors, `distance` apart.
template <int kCount, bool kScaled, int kPart, class T>
EAGLE3_QUAROT_INLINE void StridedGroup(const T* source, float* target, int64_t start,
                                       int64_t distance, InputScales scales) {
  Vector v[kCount];
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) {
    const int64_t i = start + r * distance;
    v[r] = LoadOfPair<kPart>(source + i);
    if (kScaled) v[r] = Scale(v[r], scales, i + kPart * kLanes);
  }
  VectorButterflies<kHasFusedProducts>(v, HiddenOne());
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) {
    Store(target + start + r * distance + kPart * kLanes, v[r]);
  }
}

template <int kCount, bool kScaled, class T>
EAGLE3_QUAROT_INLINE void Strided(const T* source, float* target, int64_t size, int64_t distance,
                                  InputScales scales, const T* place) {
  for (int64_t outer = 0; outer < size; outer += kCount * distance) {
    for (int64_t start = outer; start < outer + distance; start += 2 * kLanes) {
#pragma GCC unroll 16
      for (int r = 0; r < kCount; ++r) FetchTarget(place, start + r * distance);
      StridedGroup<kCount, kScaled, 0>(source, target, start, distance, scales);
      StridedGroup<kCount, kScaled, 1>(source, target, start, distance, scales);
    }
  }
}

// Butterflies between kCount vectors `distance` apart, a multiple of two vectors. The usual distance is
// a constant to the compiler: else every vector needs an address of its own, more than there are
// registers.
template <int kCount, class T>
void StridedPass(const T* source, float* target, int64_t size, int64_t distance, InputScales scales,
                 const T* place) {
  if (!scales.None()) {
    Strided<kCount, true>(source, target, size, distance, scales, place);
  } else if (distance == kReach) {
    Strided<kCount, false>(source, target, size, kReach, scales, place);
  } else {
    Strided<kCount, false>(source, target, size, distance, scales, place);
  }
}

template <class T>
void StridedPassOf(int64_t count, const T* source, float* target, int64_t size, int64_t distance,
                   InputScales scales, const T* place) {
  switch (count) {
    case 2: return StridedPass<2>(source, target, size, distance, scales, place);
    case 4: return StridedPass<4>(source, target, size, distance, scales, place);
    case 8: return StridedPass<8>(source, target, size, distance, scales, place);
    default: return StridedPass<kRadix>(source, target, size, distance, scales, place);
  }
}

// From channel i on, for runs shorter than a vector and sizes that are no multiple of one. The lanes
// behind the end become zero.
template <class T>
void ReadShortRuns(const T* source, float* block, int64_t i, int64_t size, int64_t power,
                   InputScales scales) {
  for (; i + kLanes <= size; i += kLanes) {
    Store(block + i, LaneButterflies(Scale(Load(source + i), scales, i), power));
  }
  if (i < size) {
    Vector value = LoadPart(source + i, size - i);
    if (scales.multiplier != nullptr) {
      value *= WithoutPayloads(LoadPart(scales.multiplier + i, size - i));
    }
    if (scales.signs != nullptr) value *= LoadPart(scales.signs + i, size - i);
    Store(block + i, LaneButterflies(value, power));
  }
}

// The only pass of runs of kCount vectors: reads the row. Runs of one vector are taken in pairs, too.
template <int kCount, bool kScaled, class T>
EAGLE3_QUAROT_INLINE void ReadContiguous(const T* source, float* block, int64_t size,
                                         InputScales scales, const T* place) {
  constexpr int kAtOnce = kCount == 1 ? 2 : kCount;
  int64_t start = 0;
  for (; start + kAtOnce * kLanes <= size; start += kAtOnce * kLanes) {
    Vector v[kAtOnce];
#pragma GCC unroll 16
    for (int r = 0; r < kAtOnce; r += 2) {
      const int64_t i = start + r * kLanes;
      FetchTarget(place, i);
      v[r] = LoadOfPair<0>(source + i);
      v[r + 1] = LoadOfPair<1>(source + i);
      if (kScaled) {
        v[r] = Scale(v[r], scales, i);
        v[r + 1] = Scale(v[r + 1], scales, i + kLanes);
      }
    }
    if constexpr (kCount > 1) VectorButterflies<false>(v, Vector{});
#pragma GCC unroll 16
    for (int r = 0; r < kAtOnce; ++r) {
      Store(block + start + r * kLanes, LaneButterflies(v[r], kLanes));
    }
  }
  if (start < size) ReadShortRuns(source, block, start, size, kLanes, scales);
}

template <int kCount, class T>
void ReadingPass(const T* source, float* block, int64_t size, InputScales scales,
                 const T* place) {
  if (scales.None()) {
    ReadContiguous<kCount, false>(source, block, size, scales, place);
  } else {
    ReadContiguous<kCount, true>(source, block, size, scales, place);
  }
}

// The last pass of longer runs. `block` and `target` may be the same memory.
template <bool kScaled, class T>
EAGLE3_QUAROT_INLINE void WriteContiguous(const float* block, T* target, int64_t size,
                                          const float* scale, NextBlock& next) {
  for (int64_t start = 0; start < size; start += kReach) {
    next.Fetch<kReach * 2 / kLine>();
    Vector v[kRadix];
#pragma GCC unroll 16
    for (int r = 0; r < kRadix; ++r) v[r] = Load(block + start + r * kLanes);
    VectorButterflies<false>(v, Vector{});  // the products are those of the lanes
#pragma GCC unroll 16
    for (int r = 0; r < kRadix; ++r) v[r] = LaneButterflies(v[r], kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRadix; r += 2) {
      const int64_t i = start + r * kLanes;
      if (kScaled) {
        v[r] *= Load(scale + i);
        v[r + 1] *= Load(scale + i + kLanes);
      }
      StorePair(target + i, v[r], v[r + 1]);
    }
  }
}

template <class T>
void WritingPass(const float* block, T* target, int64_t size, const float* scale, NextBlock& next) {
  if (scale == nullptr) {
    WriteContiguous<false>(block, target, size, scale, next);
  } else {
    WriteContiguous<true>(block, target, size, scale, next);
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

// Vectors to combine in the next strided pass: the distances from `length` down to the contiguous
// pass's, spread evenly over as few passes as the registers allow.
EAGLE3_QUAROT_INLINE int64_t NextCount(int64_t length) {
  int64_t passes = 0;
  for (int64_t reach = kReach; reach < length; reach *= kRadix) ++passes;
  int64_t count = 2;
  for (;; count *= 2) {
    int64_t reach = kReach;
    for (int64_t pass = 0; pass < passes; ++pass) reach *= count;
    if (reach >= length) break;
  }
  const int64_t left = length / kReach;
  return count < left ? count : left;
}

// Pieces of a block that the first pass reads side by side.
EAGLE3_QUAROT_INLINE int64_t ReadStreams(int64_t size, int64_t power) {
  return size == power && power > kReach ? NextCount(power) : 1;
}

// Reads a block and takes all distances, except, where runs are longer than kReach, those of the
// contiguous pass, which is left to WritingPass. `place` is where the block will be written and is
// fetched meanwhile, or null.
template <class T>
void ReadBlock(const T* source, float* block, int64_t size, int64_t power, InputScales scales,
               const T* place) {
  if (power < kLanes) return ReadShortRuns(source, block, 0, size, power, scales);
  if (power > kReach) {
    int64_t count = NextCount(power);
    int64_t distance = power / count;
    StridedPassOf(count, source, block, size, distance, scales, place);
    while (distance > kReach) {
      count = NextCount(distance);
      distance /= count;
      StridedPassOf(count, static_cast<const float*>(block), block, size, distance,
                    InputScales{nullptr, nullptr}, static_cast<const float*>(nullptr));
    }
    return;
  }
  switch (power / kLanes) {
    case 1: return ReadingPass<1>(source, block, size, scales, place);
    case 2: return ReadingPass<2>(source, block, size, scales, place);
    case 4: return ReadingPass<4>(source, block, size, scales, place);
    case 8: return ReadingPass<8>(source, block, size, scales, place);
    default: return ReadingPass<kRadix>(source, block, size, scales, place);
  }
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_HADAMARD_H_
