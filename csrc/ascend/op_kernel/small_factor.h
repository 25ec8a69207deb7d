// SPDX-License-Identifier: Apache-2.0
//
// The k x k matrix of +-1 applied across the k tiles of every block: y_i = sum_j F[i, j] x_j.
//
// Adding k tiles k times costs k * (k - 1) vector additions. Columns are therefore taken in
// groups of four: a group has only eight sign patterns up to the overall sign, which are computed
// once (12 additions) and shared by all k outputs (one addition or subtraction each). For k = 28
// that is 280 instead of 756 vector operations.
//
// Group q holds tiles (a, b, c, d) = (2q, 2q + 1, k/2 + 2q, k/2 + 2q + 1). With one block per
// span a and c lie in different halves of the row, hence in different bank groups.
//
//     u0 = a + c, u1 = a - c, u2 = b + d, u3 = b - d
//     v[x + 2y + 4z] = u[x] + u[2 + y]  (z = 0)   or   u[x] - u[2 + y]  (z = 1)
//
// The code of (group, output) is x + 2y + 4z + 8 * negative; EncodeFactor in op_host makes it.
#ifndef EAGLE3_QUAROT_ASCEND_SMALL_FACTOR_H_
#define EAGLE3_QUAROT_ASCEND_SMALL_FACTOR_H_

#include "kernel_operator.h"
#include "row_args.h"
#include "skewed_row.h"

namespace eagle3_quarot {

constexpr uint32_t kGroup = 4;
constexpr uint32_t kPatterns = 8;
constexpr uint32_t kNegative = 8;
constexpr uint32_t kMaxCodes = kMaxFactor * kMaxFactor / kGroup;

/// fp32 elements of scratch for tiles of m elements: u0..u3, v0..v7 and one skew.
__aicore__ inline uint32_t FactorScratch(uint32_t pow2) { return 12 * pow2 + kSkew; }

class SmallFactor {
 public:
  __aicore__ inline void Init(const RotationPlan& plan, uint32_t length, __gm__ uint8_t* codes) {
    row_ = SkewedRow{length, kSkew};
    factor_ = plan.factor;
    block_ = plan.block;
    tile_ = plan.pow2;
    // The scalar unit reads the codes once; reading them from global memory inside the loops
    // would stall the vector unit on every output.
    AscendC::GlobalTensor<uint8_t> table;
    const uint32_t count = factor_ * factor_ / kGroup;
    table.SetGlobalBuffer(codes, count);
    for (uint32_t i = 0; i < count; ++i) codes_[i] = table.GetValue(i);
  }

  /// `y` = F applied to the row in `x`. `x` is skewed, `y` is not: its tiles start in bank group 0
  /// and the patterns they accumulate in group 8.
  __aicore__ inline void Apply(const AscendC::LocalTensor<float>& y, const AscendC::LocalTensor<float>& x,
                               const AscendC::LocalTensor<float>& scratch) const {
    for (uint32_t block = 0; block < row_.length; block += block_) {
      for (uint32_t group = 0; group < factor_ / kGroup; ++group) {
        Patterns(scratch, x, block, group);
        Accumulate(y, scratch, block, group);
      }
    }
    AscendC::PipeBarrier<PIPE_V>();
  }

 private:
  __aicore__ inline AscendC::LocalTensor<float> U(const AscendC::LocalTensor<float>& scratch, uint32_t i) const {
    return scratch[i * tile_ + (i < 2 ? 0 : kSkew)];
  }
  __aicore__ inline AscendC::LocalTensor<float> V(const AscendC::LocalTensor<float>& scratch, uint32_t i) const {
    return scratch[(4 + i) * tile_ + kSkew];
  }

  __aicore__ inline void Patterns(const AscendC::LocalTensor<float>& scratch, const AscendC::LocalTensor<float>& x,
                                  uint32_t block, uint32_t group) const {
    const int32_t count = static_cast<int32_t>(tile_);
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t first = block + (2 * group + i) * tile_;
      const auto low = x[row_.At(first)];
      const auto high = x[row_.At(first + factor_ / 2 * tile_)];
      AscendC::Add(U(scratch, 2 * i), low, high, count);
      AscendC::Sub(U(scratch, 2 * i + 1), low, high, count);
    }
    AscendC::PipeBarrier<PIPE_V>();
    for (uint32_t i = 0; i < kPatterns; ++i) {
      const auto left = U(scratch, i % 2);
      const auto right = U(scratch, 2 + i / 2 % 2);
      if (i < kPatterns / 2) {
        AscendC::Add(V(scratch, i), left, right, count);
      } else {
        AscendC::Sub(V(scratch, i), left, right, count);
      }
    }
    AscendC::PipeBarrier<PIPE_V>();
  }

  // No barrier after the additions: the two barriers of the next group's patterns order them
  // before the next write to v and before the next addition to y.
  __aicore__ inline void Accumulate(const AscendC::LocalTensor<float>& y, const AscendC::LocalTensor<float>& scratch,
                                    uint32_t block, uint32_t group) const {
    const int32_t count = static_cast<int32_t>(tile_);
    for (uint32_t i = 0; i < factor_; ++i) {
      const uint32_t code = codes_[group * factor_ + i];
      const auto pattern = V(scratch, code % kPatterns);
      const auto sum = y[block + i * tile_];
      const bool negative = code >= kNegative;
      if (group == 0) {
        AscendC::Muls(sum, pattern, negative ? -1.0f : 1.0f, count);
      } else if (negative) {
        AscendC::Sub(sum, sum, pattern, count);
      } else {
        AscendC::Add(sum, sum, pattern, count);
      }
    }
  }

  SkewedRow row_;
  uint32_t factor_;
  uint32_t block_;
  uint32_t tile_;
  uint8_t codes_[kMaxCodes];
};

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_SMALL_FACTOR_H_
