// SPDX-License-Identifier: Apache-2.0
//
// y[i, :] = sum_j F(i, j) t[j, :] on a block [k, m], a vector of columns at a time.
//
// For a factor of +-1 four columns of F have only 16 sign patterns: the 16 sums +-t0 +-t1 +-t2 +-t3 are
// made once per group of four, and every row of F then costs one addition per group instead of
// four (the "method of the four Russians"). Per vector of columns that is about (16 + k) k / 4
// additions against k * k.
#ifndef EAGLE3_QUAROT_CPU_SMALL_FACTOR_H_
#define EAGLE3_QUAROT_CPU_SMALL_FACTOR_H_

#include <type_traits>

#include "hadamard.h"
#include "row_transform.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

constexpr int kSums = 16;  // sign patterns of a group of four columns

// The input columns. Of a split factor those of one half: sums for the first, differences for the
// second. Columns beyond the last one are zero.
struct Columns {
  const float* block;
  int64_t power;
  int64_t order;
  int64_t halves;
  int64_t half;

  EAGLE3_QUAROT_INLINE Vector operator[](int64_t j) const {
    if (j >= order) return Vector{};
    const Vector value = Load(block + j * power);
    if (halves == 1) return value;
    const Vector other = Load(block + (j + order) * power);
    return half == 0 ? value + other : value - other;
  }
};

EAGLE3_QUAROT_INLINE void MakeSums(const Columns& columns, int64_t group, float* sums) {
  const Vector a = columns[4 * group], b = columns[4 * group + 1];
  const Vector c = columns[4 * group + 2], d = columns[4 * group + 3];
  const Vector low[4] = {a + b, b - a, a - b, -(a + b)};
  const Vector high[4] = {c + d, d - c, c - d, -(c + d)};
#pragma GCC unroll 16
  for (int code = 0; code < kSums; ++code) {
    Store(sums + code * kLanes, low[code % 4] + high[code / 4]);
  }
}

// Rows `codes`, `codes` + 1, ... of the product; kRows independent sums hide an addition's latency.
template <int kRows, class T>
EAGLE3_QUAROT_INLINE void SumRows(const uint8_t* codes, int64_t order, int64_t groups,
                                  const float* sums, int64_t power, T* target, const float* scale) {
  Vector total[kRows] = {};
  for (int64_t group = 0; group < groups; ++group) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) total[r] += Load(sums + codes[r] * kLanes);
    sums += kSums * kLanes;
    codes += order;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const int64_t i = r * power;
    if (scale != nullptr) total[r] *= Load(scale + i);
    Store(target + i, total[r]);
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

// One vector of columns: `block`, `target` and `scale` point at its first one.
template <class T>
void FactorColumns(const SmallFactor& factor, const float* block, int64_t power, T* target,
                   const float* scale, float* sums) {
  if (!factor.is_signs) {
    for (int64_t row = 0; row < factor.order; ++row) {
      const int64_t i = row * power;
      MultiplyRow(factor, block, row, power, target + i, scale == nullptr ? scale : scale + i);
    }
    return;
  }
  const int64_t order = factor.order, groups = factor.Groups(), halves = factor.halves;
  const uint8_t* codes = factor.codes.data();
  for (int64_t half = 0; half < halves; ++half) {
    const Columns columns{block, power, order, halves, half};
    for (int64_t group = 0; group < groups; ++group) {
      MakeSums(columns, group, sums + group * kSums * kLanes);
    }
    int64_t row = 0;
    const auto sum_rows = [&](auto count) {
      for (; row + count.value <= order; row += count.value) {
        const int64_t i = (half * order + row) * power;
        SumRows<count.value>(codes + row, order, groups, sums, power, target + i,
                             scale == nullptr ? scale : scale + i);
      }
    };
    // Orders of Hadamard matrices are multiples of four.
    sum_rows(std::integral_constant<int, 8>());
    sum_rows(std::integral_constant<int, 4>());
    sum_rows(std::integral_constant<int, 1>());
  }
}

// The whole block. `products` is scratch memory for blocks of runs shorter than a vector, `sums` for
// Groups() * 16 vectors.
template <class T>
void ApplyFactor(const SmallFactor& factor, const float* block, int64_t size, int64_t power, T* target,
                 const float* scale, float* products, float* sums) {
  if (power >= kLanes) {
    for (int64_t column = 0; column < power; column += kLanes) {
      FactorColumns(factor, block + column, power, target + column,
                    scale == nullptr ? scale : scale + column, sums);
    }
    return;
  }
  // A vector reaches into the next rows. Rows are stored in ascending order, so that each one
  // overwrites what its predecessor left there; the last one ends in the padding.
  FactorColumns(factor, block, power, products, static_cast<const float*>(nullptr), sums);
  WriteRow(products, target, size, scale);
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_SMALL_FACTOR_H_
