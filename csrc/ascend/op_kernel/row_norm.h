// SPDX-License-Identifier: Apache-2.0
//
// 1 / rms of a row, or of the A rows of a token taken together.
//
// The sum of squares is taken from the rotated input: Q is orthogonal, so both coordinate systems
// have the same one. That lets the norm over a concatenation be known before its first slice is
// written. gamma is not invariant and is applied to the natural-order result.
#ifndef EAGLE3_QUAROT_ASCEND_ROW_NORM_H_
#define EAGLE3_QUAROT_ASCEND_ROW_NORM_H_

#include "kernel_operator.h"
#include "row_args.h"
#include "skewed_row.h"

namespace eagle3_quarot {

/// fp32 elements of scratch for a row: ReduceSum's workspace and two one-element blocks.
__aicore__ inline uint32_t NormScratch(uint32_t length) {
  const uint32_t partial_sums = length / 2 / kRepeat;
  return (partial_sums + kBlock - 1) / kBlock * kBlock + 2 * kBlock;
}

class RowNorm {
 public:
  __aicore__ inline void Init(AscendC::TPipe* pipe, const SkewedRow& row, const RowArgs& args) {
    pipe_ = pipe;
    row_ = row;
    epsilon_ = args.epsilon;
    const uint32_t channels = args.norm == Norm::kConcat ? args.slices * row.length : row.length;
    inverse_count_ = 1.0f / static_cast<float>(channels);
    pipe_->InitBuffer(scratch_, NormScratch(row.length) * static_cast<uint32_t>(sizeof(float)));
  }

  /// sums = x * x, element by element.
  __aicore__ inline void Squares(const AscendC::LocalTensor<float>& sums, const AscendC::LocalTensor<float>& x) const {
    const int32_t half = static_cast<int32_t>(row_.Half());
    const uint32_t upper = row_.Upper();
    AscendC::Mul(sums, x, x, half);
    AscendC::Mul(sums[upper], x[upper], x[upper], half);
    AscendC::PipeBarrier<PIPE_V>();
  }

  /// sums (+)= x * x, element by element; `x` is clobbered unless this is the first row.
  __aicore__ inline void AddSquares(const AscendC::LocalTensor<float>& sums, const AscendC::LocalTensor<float>& x,
                                    bool first) const {
    if (first) {
      Squares(sums, x);
      return;
    }
    const int32_t half = static_cast<int32_t>(row_.Half());
    const uint32_t upper = row_.Upper();
    Squares(x, x);
    AscendC::Add(sums, sums, x, half);
    AscendC::Add(sums[upper], sums[upper], x[upper], half);
    AscendC::PipeBarrier<PIPE_V>();
  }

  /// 1 / sqrt(mean + epsilon); `sums` is clobbered.
  __aicore__ inline float InverseRms(const AscendC::LocalTensor<float>& sums) {
    const int32_t half = static_cast<int32_t>(row_.Half());
    const AscendC::LocalTensor<float> value = scratch_.template Get<float>();
    const AscendC::LocalTensor<float> one = value[kBlock];
    const AscendC::LocalTensor<float> workspace = value[2 * kBlock];
    AscendC::Add(sums, sums, sums[row_.Upper()], half);
    AscendC::Duplicate(one, 1.0f, 1);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::ReduceSum(value, sums, workspace, half);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Muls(value, value, inverse_count_, 1);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Adds(value, value, epsilon_, 1);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sqrt(value, value, 1);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Div(value, one, value, 1);
    const event_t ready = static_cast<event_t>(pipe_->FetchEventID(AscendC::HardEvent::V_S));
    AscendC::SetFlag<AscendC::HardEvent::V_S>(ready);
    AscendC::WaitFlag<AscendC::HardEvent::V_S>(ready);
    return value.GetValue(0);
  }

 private:
  AscendC::TPipe* pipe_;
  SkewedRow row_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> scratch_;
  float epsilon_;
  float inverse_count_;
};

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROW_NORM_H_
