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

// kCount rows of the product from `first` on.
template <int kCount, int kWide, class T>
EAGLE3_QUAROT_INLINE void SumRows(const SmallFactor& factor, int64_t first, const float* sums,
                                  int64_t power, int64_t step, T* target, const float* scale) {
  const uint8_t* codes = factor.codes.data() + first;
  const float* signs = factor.code_signs.data() + first;
  Vector total[kCount][kWide] = {};
  for (int64_t group = 0; group < factor.Groups(); ++group) {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      // Loading a sign costs as much as loading a sum.
      const Vector sign = Broadcast(signs[r]);
      const float* sum = FindSum<kWide>(sums, codes[r]);
#pragma GCC unroll 2
      for (int w = 0; w < kWide; ++w) total[r][w] += Load(sum + w * kLanes) * sign;
    }
    sums += kSums * kWide * kLanes;
    codes += factor.order;
    signs += factor.order;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
#pragma GCC unroll 2
    for (int w = 0; w < kWide; ++w) {
      const int64_t i = r * power + w * step;
      if (scale != nullptr) total[r][w] *= Load(scale + i);
      if (!(kIsStreamed<T> && kWide == 2) || step != kLanes) Store(target + i, total[r][w]);
    }
    if constexpr (kIsStreamed<T> && kWide == 2) {
      if (step == kLanes) {
        StoreLine(target + r * power, Narrow(T{}, total[r][0]), Narrow(T{}, total[r][1]));
      }
    }
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
                   const float* scale, float* sums) {
  const int64_t order = factor.order;
  const Columns<kWide> columns{block, power, order, factor.halves == 2};
  for (int64_t group = 0; group < factor.Groups(); ++group) {
    MakeSums(columns, group, sums + group * kSums * kWide * kLanes);
  }
  int64_t row = 0;
  const auto sum_rows = [&](auto count) {
    for (; row + count.value <= order; row += count.value) {
      const int64_t i = row * power;
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
                      T* target, const float* scale, float* sums) {
  block += column;
  target += column;
  if (scale != nullptr) scale += column;
  if (factor.is_signs) {
    const bool has_neighbour = power - column >= 2 * kLanes;
    if (factor.halves == 2 || has_neighbour) {
      SignedColumns<2>(factor, block, power, target, scale, sums);
      return factor.halves == 2 ? kLanes : 2 * kLanes;
    }
    SignedColumns<1>(factor, block, power, target, scale, sums);
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
                 const float* scale, float* products, float* sums) {
  if (power >= kLanes) {
    for (int64_t column = 0; column < power;) {
      column += FactorColumns(factor, block, power, column, target, scale, sums);
    }
    return;
  }
  // A vector reaches into the next rows. Rows are stored in ascending order, so that each one
  // overwrites what its predecessor left there; the last one ends in the padding.
  FactorColumns(factor, block, power, 0, products, static_cast<const float*>(nullptr), sums);
  WriteRow(products, target, size, scale);
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_SMALL_FACTOR_H_
