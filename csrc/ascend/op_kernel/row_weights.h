// SPDX-License-Identifier: Apache-2.0
//
// The vector a row is multiplied by, kept in the Unified Buffer: the scale s, or s times a
// per-channel multiplier (1/g before a rotation, gamma after an un-rotation).
#ifndef EAGLE3_QUAROT_ASCEND_ROW_WEIGHTS_H_
#define EAGLE3_QUAROT_ASCEND_ROW_WEIGHTS_H_

#include "kernel_operator.h"
#include "row_args.h"
#include "row_casts.h"
#include "skewed_row.h"

namespace eagle3_quarot {

template <typename T>
class RowWeights {
 public:
  /// `layout` is that of the rows to be multiplied.
  __aicore__ inline void Init(AscendC::TPipe* pipe, const RowArgs& args, const SkewedRow& layout) {
    pipe_ = pipe;
    layout_ = layout;
    block_ = args.plan.block;
    channel_is_float_ = args.channel_is_float != 0;
    scale_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(args.scale), block_);
    pipe_->InitBuffer(area_, (layout.length + kRowPadding) * static_cast<uint32_t>(sizeof(float)));
  }

  /// Makes the weights for one channel vector (0: none). Runs between rows: `row_a` and `row_b` are
  /// free and take the vector as it is stored and as fp32.
  __aicore__ inline void Load(uint64_t channel, bool reload, const AscendC::LocalTensor<T>& row_a,
                              const AscendC::LocalTensor<float>& row_b) {
    const AscendC::LocalTensor<float> weights = Weights();
    const uint32_t half = layout_.Half();
    const uint32_t upper = layout_.Upper();
    if (reload) {
      // Earlier rows may still be reading the old weights and the row areas.
      const event_t free = static_cast<event_t>(pipe_->FetchEventID(AscendC::HardEvent::V_MTE2));
      AscendC::SetFlag<AscendC::HardEvent::V_MTE2>(free);
      AscendC::WaitFlag<AscendC::HardEvent::V_MTE2>(free);
    }
    LoadScale(weights);
    if (channel != 0 && channel_is_float_) {
      AscendC::GlobalTensor<float> source;
      source.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(channel), layout_.length);
      AscendC::DataCopy(row_b, source, half);
      AscendC::DataCopy(row_b[upper], source[half], half);
    } else if (channel != 0) {
      AscendC::GlobalTensor<T> source;
      source.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(channel), layout_.length);
      AscendC::DataCopy(row_a, source, layout_.length);
    }
    const event_t loaded = static_cast<event_t>(pipe_->FetchEventID(AscendC::HardEvent::MTE2_V));
    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded);
    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded);
    if (channel == 0) return;
    if (!channel_is_float_) {
      Widen(row_b, row_a, half);
      Widen(row_b[upper], row_a[half], half);
      AscendC::PipeBarrier<PIPE_V>();
    }
    // The barriers of the transform order this before the weights are used.
    Multiply(weights, weights, row_b);
  }

  /// dst = src * weights.
  __aicore__ inline void Apply(const AscendC::LocalTensor<float>& dst, const AscendC::LocalTensor<float>& src) {
    Multiply(dst, src, Weights());
  }

 private:
  // Elements before the weights proper: puts them 8 bank groups away from the row they multiply.
  static constexpr uint32_t kWeightOffset = kSkew;

  // The scale of one block, repeated over the span; a copy ends with its block or half row.
  __aicore__ inline void LoadScale(const AscendC::LocalTensor<float>& weights) {
    for (uint32_t at = 0; at < layout_.length;) {
      const uint32_t in_block = at % block_;
      const uint32_t block_left = block_ - in_block;
      const uint32_t half_left = (at < layout_.Half() ? layout_.Half() : layout_.length) - at;
      const uint32_t count = block_left < half_left ? block_left : half_left;
      AscendC::DataCopy(weights[layout_.At(at)], scale_[in_block], count);
      at += count;
    }
  }

  __aicore__ inline AscendC::LocalTensor<float> Weights() {
    return area_.template Get<float>()[kWeightOffset];
  }

  __aicore__ inline void Multiply(const AscendC::LocalTensor<float>& dst, const AscendC::LocalTensor<float>& a,
                                  const AscendC::LocalTensor<float>& b) const {
    const int32_t half = static_cast<int32_t>(layout_.Half());
    const uint32_t upper = layout_.Upper();
    AscendC::Mul(dst, a, b, half);
    AscendC::Mul(dst[upper], a[upper], b[upper], half);
  }

  AscendC::TPipe* pipe_;
  SkewedRow layout_;
  uint32_t block_;
  bool channel_is_float_;
  AscendC::GlobalTensor<float> scale_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> area_;
};

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROW_WEIGHTS_H_
