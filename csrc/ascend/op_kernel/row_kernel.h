// SPDX-License-Identifier: Apache-2.0
//
// One kernel for every op of the family: read a row (or whole blocks of it), un-rotate or rotate
// it in fp32, optionally normalise it, write it to its place in the output, rounded once.
//
//   unrotate          sources are the slices of one [T, A * H] tensor
//   unrotate_concat   sources are A tensors of their own; the concatenation is the store address
//   unrotate_norm     either of the two, followed by RMSNorm with gamma in natural order
//   embedding_unrotate  one source, the table, read at ids[t]
//   rotate            one source, multiplied by 1/g first
//
// Work item n is span n % spans of row n / spans; rows are counted slice by slice, so that a core
// meets each slice's gamma once. Core c takes items c, c + cores, c + 2 * cores, ...
#ifndef EAGLE3_QUAROT_ASCEND_ROW_KERNEL_H_
#define EAGLE3_QUAROT_ASCEND_ROW_KERNEL_H_

#include "hadamard_stages.h"
#include "kernel_operator.h"
#include "row_args.h"
#include "row_casts.h"
#include "row_norm.h"
#include "row_weights.h"
#include "skewed_row.h"
#include "small_factor.h"

namespace eagle3_quarot {

template <typename T>
class RowKernel {
 public:
  __aicore__ inline explicit RowKernel(AscendC::TPipe* pipe) : pipe_(pipe) {}

  __aicore__ inline void Init(const RowArgs& args) {
    args_ = args;
    span_ = args.span;
    spans_ = args.plan.hidden / span_;
    items_ = args.tokens * args.slices * spans_;  // below 2^31, checked on the host
    input_row_ = SkewedRow{span_, kSkew};
    // The small factor leaves its result without the gap between the halves.
    result_row_ = SkewedRow{span_, args.plan.factor > 1 ? 0 : kSkew};

    out_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(args.out),
                         static_cast<uint64_t>(args.tokens) * args.slices * args.plan.hidden);
    if (args.ids != 0 && args.id_bytes == 8) {
      ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int64_t*>(args.ids), args.tokens);
    } else if (args.ids != 0) {
      short_ids_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(args.ids), args.tokens);
    }

    // The order matters for the bank groups: every row area is a multiple of 512 bytes, so each
    // starts in group 0, and the weights start half a wrap further.
    pipe_->InitBuffer(row_a_, RowBytes());
    pipe_->InitBuffer(row_b_, RowBytes());
    weights_.Init(pipe_, args, args.direction == Direction::kRotate ? input_row_ : result_row_);
    if (args.plan.factor > 1) {
      pipe_->InitBuffer(scratch_, FactorScratch(args.plan.pow2) * static_cast<uint32_t>(sizeof(float)));
      factor_.Init(args.plan, span_, reinterpret_cast<__gm__ uint8_t*>(args.factor_codes));
    }
    if (args.norm != Norm::kNone) norm_.Init(pipe_, input_row_, args);
    pipe_->InitBuffer(in_queue_, static_cast<uint8_t>(args.buffers), span_ * static_cast<uint32_t>(sizeof(T)));
    pipe_->InitBuffer(out_queue_, static_cast<uint8_t>(args.buffers), span_ * static_cast<uint32_t>(sizeof(T)));
    stages_.Init(span_, args.plan.pow2);
  }

  __aicore__ inline void Process() {
    first_item_ = static_cast<uint32_t>(AscendC::GetBlockIdx());
    cores_ = static_cast<uint32_t>(AscendC::GetBlockNum());
    if (first_item_ >= items_) return;
    loads_per_item_ = args_.norm == Norm::kConcat ? args_.slices + 1 : 1;
    load_item_ = first_item_;
    load_step_ = 0;
    IssueLoad();
    uint64_t loaded = args_.channels[SliceOf(first_item_)];
    LoadWeights(loaded, false);
    for (uint32_t item = first_item_; item < items_; item += cores_) {
      const uint64_t channel = args_.channels[SliceOf(item)];
      if (channel != loaded) LoadWeights(channel, true);
      loaded = channel;
      if (Present(item)) {
        Compute(item);
      } else {
        IssueLoad();
        StoreZeros(item);
      }
    }
  }

 private:
  __aicore__ inline uint32_t RowBytes() const {
    return (span_ + kRowPadding) * static_cast<uint32_t>(sizeof(float));
  }
  __aicore__ inline uint32_t SliceOf(uint32_t item) const { return item / spans_ / args_.tokens; }
  __aicore__ inline uint32_t TokenOf(uint32_t item) const { return item / spans_ % args_.tokens; }
  __aicore__ inline uint32_t OffsetOf(uint32_t item) const { return item % spans_ * span_; }

  __aicore__ inline int64_t IdOf(uint32_t item) const {
    return args_.id_bytes == 8 ? ids_.GetValue(TokenOf(item)) : short_ids_.GetValue(TokenOf(item));
  }
  __aicore__ inline bool Present(uint32_t item) const {
    if (args_.ids == 0) return true;
    const int64_t id = IdOf(item);
    return id >= args_.vocab_start && id < args_.vocab_end;
  }

  // Starts the next DMA of this core's sequence of loads: one per item, or for the norm over the
  // concatenation all slices of the token (for the sum of squares) and then the item's own.
  __aicore__ inline void IssueLoad() {
    const uint32_t item = load_item_;
    const uint32_t step = load_step_;
    if (item >= items_) return;
    load_step_ = step + 1 == loads_per_item_ ? 0 : step + 1;
    if (load_step_ == 0) load_item_ += cores_;
    if (!Present(item)) return;
    const uint32_t slice = step + 1 < loads_per_item_ ? step : SliceOf(item);
    uint64_t row = TokenOf(item);
    uint64_t rows = args_.tokens;
    if (args_.ids != 0) {
      row = static_cast<uint64_t>(IdOf(item) - args_.vocab_start);
      rows = static_cast<uint64_t>(args_.vocab_end - args_.vocab_start);
    }
    AscendC::GlobalTensor<T> source;
    source.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(args_.sources[slice]),
                           (rows - 1) * args_.strides[slice] + args_.plan.hidden);
    AscendC::LocalTensor<T> in = in_queue_.template AllocTensor<T>();
    AscendC::DataCopy(in, source[row * args_.strides[slice] + OffsetOf(item)], span_);
    in_queue_.EnQue(in);
  }

  // Takes the loaded row as fp32 into `row` and starts the next load, before the arithmetic of
  // this row when a second buffer is there.
  __aicore__ inline void TakeRow(const AscendC::LocalTensor<float>& row) {
    AscendC::LocalTensor<T> in = in_queue_.template DeQue<T>();
    if (args_.buffers > 1) IssueLoad();
    Widen(row, in, input_row_.Half());
    Widen(row[input_row_.Upper()], in[input_row_.Half()], input_row_.Half());
    AscendC::PipeBarrier<PIPE_V>();
    in_queue_.FreeTensor(in);
    if (args_.buffers == 1) IssueLoad();
  }

  __aicore__ inline void LoadWeights(uint64_t channel, bool reload) {
    weights_.Load(channel, reload, row_a_.template Get<T>(), row_b_.template Get<float>());
  }

  __aicore__ inline void Compute(uint32_t item) {
    AscendC::LocalTensor<float> a = row_a_.template Get<float>();
    AscendC::LocalTensor<float> b = row_b_.template Get<float>();
    float inverse_rms = 1.0f;
    if (args_.norm == Norm::kConcat) {
      for (uint32_t slice = 0; slice < args_.slices; ++slice) {
        TakeRow(a);
        norm_.AddSquares(b, a, slice == 0);
      }
      inverse_rms = norm_.InverseRms(b);
    }
    TakeRow(a);
    if (args_.norm == Norm::kSlice) {
      norm_.Squares(b, a);
      inverse_rms = norm_.InverseRms(b);
    }
    if (args_.direction == Direction::kRotate) {
      weights_.Apply(a, a);
      AscendC::PipeBarrier<PIPE_V>();
    }
    stages_.Apply(a, b);
    if (args_.plan.factor > 1) {
      factor_.Apply(b, a, scratch_.template Get<float>());
      Swap(a, b);
    }
    if (args_.direction == Direction::kUnrotate) {
      weights_.Apply(b, a);
      AscendC::PipeBarrier<PIPE_V>();
      Swap(a, b);
    }
    if (args_.norm != Norm::kNone) {
      const int32_t half = static_cast<int32_t>(result_row_.Half());
      AscendC::Muls(a, a, inverse_rms, half);
      AscendC::Muls(a[result_row_.Upper()], a[result_row_.Upper()], inverse_rms, half);
      AscendC::PipeBarrier<PIPE_V>();
    }
    Store(item, a);
  }

  __aicore__ inline void StoreZeros(uint32_t item) {
    const AscendC::LocalTensor<float> row = row_a_.template Get<float>();
    AscendC::Duplicate(row, 0.0f, static_cast<int32_t>(span_ + kSkew));
    AscendC::PipeBarrier<PIPE_V>();
    Store(item, row);
  }

  // No barrier after the casts: EnQue's event waits for them.
  __aicore__ inline void Store(uint32_t item, const AscendC::LocalTensor<float>& row) {
    AscendC::LocalTensor<T> out = out_queue_.template AllocTensor<T>();
    Narrow(out, row, result_row_.Half());
    Narrow(out[result_row_.Half()], row[result_row_.Upper()], result_row_.Half());
    out_queue_.EnQue(out);
    out = out_queue_.template DeQue<T>();
    const uint64_t out_row = static_cast<uint64_t>(TokenOf(item)) * args_.slices + SliceOf(item);
    AscendC::DataCopy(out_[out_row * args_.plan.hidden + OffsetOf(item)], out, span_);
    out_queue_.FreeTensor(out);
  }

  AscendC::TPipe* pipe_;
  RowArgs args_;
  uint32_t span_;
  uint32_t spans_;  // spans of one row
  uint32_t items_;
  uint32_t first_item_;
  uint32_t cores_;
  uint32_t loads_per_item_;
  uint32_t load_item_;  // item and step of the next load
  uint32_t load_step_;
  SkewedRow input_row_;
  SkewedRow result_row_;
  HadamardStages stages_;
  SmallFactor factor_;
  RowNorm norm_;
  RowWeights<T> weights_;
  AscendC::TQue<AscendC::TPosition::VECIN, 1> in_queue_;
  AscendC::TQue<AscendC::TPosition::VECOUT, 1> out_queue_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> row_a_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> row_b_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> scratch_;
  AscendC::GlobalTensor<T> out_;
  AscendC::GlobalTensor<int64_t> ids_;
  AscendC::GlobalTensor<int32_t> short_ids_;
};

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROW_KERNEL_H_
