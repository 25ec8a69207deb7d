// SPDX-License-Identifier: Apache-2.0
//
// y[i, :] = sum_j F(i, j) t[j, :] on a block [k, m], a vector of columns at a time.
//
// For a factor of +-1 four columns of F have only 16 sign patterns, eight but for the sign: the sums
// t0 +-t1 +-t2 +-t3 are made once per group of four, and every row of F then adds or subtracts one of
// them per group (the "method of the four Russians"). Per vector of columns that is (12 + k) k / 4
// additions against k * k, and 2 k stores of sums.
#ifndef EAGLE3_QUAROT_CPU_SMALL_FACTOR_H_
#define EAGLE3_QUAROT_CPU_SMALL_FACTOR_H_

#include <type_traits>

#include "hadamard.h"
#include "row_transform.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

constexpr int kSums = 8;  // sign patterns of a group of four columns, the first one positive

// Rows of the product summed at once: independent sums hide an addition's latency, and two vectors of
// each have to fit the registers.
constexpr int kRows = kRadix == 16 ? 8 : 4;

// kWide vectors share codes and signs: two neighbours, or of a split factor the two halves, whose
// inputs are the sum and the difference of the upper and the lower rows.
template <int kWide>
struct Columns {
  const float* block;
  int64_t power;
  int64_t order;
  bool split;

  // Columns beyond the last one are zero.
  EAGLE3_QUAROT_INLINE void Read(int64_t j, Vector (&column)[kWide]) const {
    if (j >= order) {
      for (int w = 0; w < kWide; ++w) column[w] = Vector{};
      return;
    }
    column[0] = Load(block + j * power);
    if constexpr (kWide == 2) {
      const Vector other = Load(block + (split ? (j + order) * power : j * power + kLanes));
      column[1] = split ? column[0] - other : other;
      if (split) column[0] += other;
    }
  }

  // From the first vector of a row of the product to the second.
  EAGLE3_QUAROT_INLINE int64_t Step() const { return split ? order * power : kLanes; }
};

template <int kWide>
EAGLE3_QUAROT_INLINE void MakeSums(const Columns<kWide>& columns, int64_t group, float* sums) {
  constexpr int kStride = kWide * kLanes;
  Vector a[kWide], b[kWide], c[kWide], d[kWide];
  columns.Read(4 * group, a);
  columns.Read(4 * group + 1, b);
  columns.Read(4 * group + 2, c);
  columns.Read(4 * group + 3, d);
#pragma GCC unroll 2
  for (int w = 0; w < kWide; ++w) {
    const Vector low[2] = {a[w] + b[w], a[w] - b[w]};
    const Vector plus = c[w] + d[w], minus = c[w] - d[w];
#pragma GCC unroll 2
    for (int code = 0; code < 2; ++code) {
      float* sum = sums + code * kStride + w * kLanes;
      Store(sum, low[code] + plus);
      Store(sum + 2 * kStride, low[code] - minus);
      Store(sum + 4 * kStride, low[code] + minus);
      Store(sum + 6 * kStride, low[code] - plus);
    }
  }
}

template <int kWide>
EAGLE3_QUAROT_INLINE const float* FindSum(const float* sums, int64_t code) {
  constexpr int64_t kBytes = kWide * sizeof(Vector) / SmallFactor::kCodeStep;
  return reinterpret_cast<const float*>(reinterpret_cast<const char*>(sums) + code * kBytes);
}

// The codes of up to eight rows, read at once: a load each would take half as long as that of a sum.
template <int kCount>
struct Codes {
  uint64_t packed = 0;

  EAGLE3_QUAROT_INLINE explicit Codes(const uint8_t* codes) {
    static_assert(kCount <= 8 && SmallFactor::kSubtract == 0x80, "eight bytes, signs highest");
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first one is lowest");
    __builtin_memcpy(&packed, codes, kCount);
  }

  // The place of a row's sum.
  EAGLE3_QUAROT_INLINE int64_t Place(int row) const {
    return packed >> (8 * row) & (SmallFactor::kSubtract - 1);
  }

  // The signs, 1 or -1, of rows `first` to `first` + 3, repeated. Reading a sign for all lanes would
  // take as long as reading a sum.
  template <int... kLane>
  EAGLE3_QUAROT_INLINE Vector FourSigns(int first, std::integer_sequence<int, kLane...>) const {
    const Bits codes = static_cast<uint32_t>(packed >> (8 * first)) - Bits{};
#if defined(__AVX2__)
    const Bits sign_first = codes << Bits{(24u - kLane % 4 * 8u)...};
    return BitCast<Vector>((sign_first & 0x80000000u) | 0x3f800000u);
#else  // no shifts by lane
    const Bits subtract = {(uint32_t{SmallFactor::kSubtract} << kLane % 4 * 8)...};
    return BitCast<Vector>((BitCast<Bits>((codes & subtract) != 0) & 0x80000000u) | 0x3f800000u);
#endif
  }
};

// Adds each row's sum of one group.
template <int kCount, int kWide, int... kRow>
EAGLE3_QUAROT_INLINE void AddSums(Vector (&total)[kCount][kWide], const uint8_t* codes,
                                  const float* sums, std::integer_sequence<int, kRow...>) {
  const Codes<kCount> code(codes);
  const Vector signs[2] = {code.FourSigns(0, kLaneIndices),
                           kCount > 4 ? code.FourSigns(4, kLaneIndices) : Vector{}};
  const auto add = [&](Vector (&row)[kWide], const float* sum, Vector sign) {
#pragma GCC unroll 2
    for (int w = 0; w < kWide; ++w) row[w] += Load(sum + w * kLanes) * sign;
  };
  (add(total[kRow], FindSum<kWide>(sums, code.Place(kRow)),
       SpreadLane<kRow % 4>(signs[kRow / 4], kLaneIndices)),
   ...);
}

// kCount rows of the product from `first` on.
template <int kCount, int kWide, class T>
EAGLE3_QUAROT_INLINE void SumRows(const SmallFactor& factor, int64_t first, const float* sums,
                                  int64_t power, int64_t step, T* target, const float* scale) {
  const uint8_t* codes = factor.codes.data() + first;
  Vector total[kCount][kWide] = {};
  for (int64_t group = 0; group < factor.Groups(); ++group) {
    AddSums(total, codes, sums, std::make_integer_sequence<int, kCount>());
    sums += kSums * kWide * kLanes;
    codes += factor.order;
  }
  if (scale != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) total[r][w] *= Load(scale + r * power + w * step);
    }
  }
  // Two vectors side by side are written as one: of a row, or of two rows of one vector each.
  if (kWide == 2 && step == kLanes) {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) StorePair(target + r * power, total[r][0], total[r][kWide - 1]);
    return;
  }
#pragma GCC unroll 2
  for (int w = 0; w < kWide; ++w) {
    if (kCount > 1 && power == kLanes) {
#pragma GCC unroll 8
      for (int r = 0; r + 1 < kCount; r += 2) {
        StorePair(target + r * kLanes + w * step, total[r][w], total[r + 1][w]);
      }
      continue;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) Store(target + r * power + w * step, total[r][w]);
  }
}

// Any factor: one product and addition per entry.
template <class T>
EAGLE3_QUAROT_INLINE void MultiplyRow(const SmallFactor& factor, const float* block, int64_t row,
                                      int64_t power, T* target, const float* scale) {
  const float* values = factor.values + row * factor.row_stride;
  Vector total = {};
  for (int64_t j = 0; j < factor.order; ++j) {
    total += Load(block + j * power) * values[j * factor.column_stride];
  }
  if (scale != nullptr) total *= Load(scale);
  Store(target, total);
}

// The columns from `block` on of a factor of +-1: `block`, `target` and `scale` point at the first.
template <int kWide, class T>
void SignedColumns(const SmallFactor& factor, const float* block, int64_t power, T* target,
                   const float* scale, float* sums, NextBlock& next) {
  const int64_t order = factor.order;
  const Columns<kWide> columns{block, power, order, factor.halves == 2};
  for (int64_t group = 0; group < factor.Groups(); ++group) {
    MakeSums(columns, group, sums + group * kSums * kWide * kLanes);
  }
  int64_t row = 0;
  const auto sum_rows = [&](auto count) {
    for (; row + count.value <= order; row += count.value) {
      const int64_t i = row * power;
      next.Fetch<(count.value * kWide + 1) / 2>();
      SumRows<count.value, kWide>(factor, row, sums, power, columns.Step(), target + i,
                                  scale == nullptr ? scale : scale + i);
    }
  };
  // Orders of Hadamard matrices are multiples of four.
  sum_rows(std::integral_constant<int, kRows>());
  sum_rows(std::integral_constant<int, 4>());
  sum_rows(std::integral_constant<int, 1>());
}

// The columns from `column` on, for any factor. Returns how many.
template <class T>
int64_t FactorColumns(const SmallFactor& factor, const float* block, int64_t power, int64_t column,
                      T* target, const float* scale, float* sums, NextBlock& next) {
  block += column;
  target += column;
  if (scale != nullptr) scale += column;
  if (factor.is_signs) {
    const bool has_neighbour = power - column >= 2 * kLanes;
    if (factor.halves == 2 || has_neighbour) {
      SignedColumns<2>(factor, block, power, target, scale, sums, next);
      return factor.halves == 2 ? kLanes : 2 * kLanes;
    }
    SignedColumns<1>(factor, block, power, target, scale, sums, next);
    return kLanes;
  }
  for (int64_t row = 0; row < factor.order; ++row) {
    const int64_t i = row * power;
    MultiplyRow(factor, block, row, power, target + i, scale == nullptr ? scale : scale + i);
  }
  return kLanes;
}

// The whole block. `products` is scratch memory for blocks of runs shorter than a vector, `sums` for
// Groups() * 16 vectors.
template <class T>
void ApplyFactor(const SmallFactor& factor, const float* block, int64_t size, int64_t power, T* target,
                 const float* scale, float* products, float* sums, NextBlock& next) {
  if (power >= kLanes) {
    for (int64_t column = 0; column < power;) {
      column += FactorColumns(factor, block, power, column, target, scale, sums, next);
    }
    return;
  }
  // A vector reaches into the next rows. Rows are stored in ascending order, so that each one
  // overwrites what its predecessor left there; the last one ends in the padding.
  FactorColumns(factor, block, power, 0, products, static_cast<const float*>(nullptr), sums,
                next);
  WriteRow(products, target, size, scale);
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_SMALL_FACTOR_H_
