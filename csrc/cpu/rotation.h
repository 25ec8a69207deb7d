// SPDX-License-Identifier: Apache-2.0
//
// Q as one call sees it: what the kernels take, or the product through torch's GEMM.
#ifndef EAGLE3_QUAROT_CPU_ROTATION_H_
#define EAGLE3_QUAROT_CPU_ROTATION_H_

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>

#include "row_transform.h"
#include "rows.h"
#include "threads.h"

namespace eagle3_quarot {
namespace cpu {

// Factors of a larger order go through torch's GEMM, and so do all without a Hadamard part.
constexpr int64_t kLargestSmallFactor = 256;

// Q as one call sees it.
class Rotation {
 public:
  Rotation(const at::Tensor& signs, const at::Tensor& factor, int64_t power, Direction direction)
      : signs_(signs.contiguous()),
        factor_(factor.contiguous()),
        power_(power),
        direction_(direction),
        uses_gemm_(power == 1 || factor.size(0) > kLargestSmallFactor) {
    if (!uses_gemm_) {
      transform_ = MakeTransform(factor_.size(0), power, signs_.const_data_ptr<float>(),
                                 factor_.const_data_ptr<float>(), direction);
    }
  }

  void SetMultiplier(const at::Tensor& multiplier) {
    multiplier_ = multiplier.contiguous();
    transform_.multiplier = multiplier_.const_data_ptr<float>();
    transform_.multiplier_size = multiplier_.numel();
  }

  bool uses_gemm() const { return uses_gemm_; }
  const Transform& transform() const { return transform_; }
  int64_t block() const { return signs_.numel(); }

  // `x` [n, channels] of any float dtype times Q or Q^T, in fp32, where there is no kernel for it.
  at::Tensor Multiply(const at::Tensor& x) const {
    const int64_t order = factor_.size(0);
    at::Tensor y = x.to(at::kFloat);
    if (multiplier_.defined()) {
      y = y.reshape({-1, multiplier_.numel()}).mul(multiplier_);
    }
    y = y.reshape({-1, block()});
    const bool rotate = direction_ == Direction::kRotate;
    if (rotate) y = y.mul(signs_);
    if (power_ == 1) {
      y = at::mm(y, rotate ? factor_ : factor_.t());
    } else {
      y = at::matmul(rotate ? factor_.t() : factor_, Hadamard(y).view({-1, order, power_}));
    }
    y = y.reshape({-1, block()});
    if (!rotate) y.mul_(signs_);
    return y.reshape(x.sizes());
  }

 private:
  // fp32 `x` [n, block] with every run of `power_` channels transformed, a new tensor.
  at::Tensor Hadamard(const at::Tensor& x) const {
    const at::Tensor y = at::empty(x.sizes(), x.options());
    const float one = 1.0f;
    const Transform runs = MakeTransform(1, power_, nullptr, &one, direction_);
    const Rows source(x), target(y);
    at::parallel_for(0, source.count(), RowsPerThread(block()), [&](int64_t begin, int64_t end) {
      float* scratch = Scratch::OfThisThread().Reserve(ScratchFloats(runs));
      for (int64_t row = begin; row < end; ++row) {
        Native().transform_row(runs, 0, block(), Dtype::kFloat32, source.At(row), nullptr,
                               Dtype::kFloat32, target.At(row), false, scratch);
      }
    });
    return y;
  }

  at::Tensor signs_;
  at::Tensor factor_;
  at::Tensor multiplier_;
  int64_t power_;
  Direction direction_;
  bool uses_gemm_;
  Transform transform_;
};

}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_ROTATION_H_
