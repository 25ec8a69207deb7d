// SPDX-License-Identifier: Apache-2.0
//
// A tensor [..., width] as rows whose channels lie side by side.
#ifndef EAGLE3_QUAROT_CPU_ROWS_H_
#define EAGLE3_QUAROT_CPU_ROWS_H_

#include <ATen/core/Tensor.h>

#include "row_transform.h"

namespace eagle3_quarot {
namespace cpu {

inline Dtype DtypeFor(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16: return Dtype::kBFloat16;
    case at::kHalf: return Dtype::kFloat16;
    default: return Dtype::kFloat32;
  }
}

// Rows may be strided or padded and are read in place. Only a tensor whose channels themselves are
// strided, or whose leading axes do not merge, is copied.
struct Rows {
  at::Tensor tensor;  // [count, width], the last axis contiguous

  explicit Rows(const at::Tensor& x) : tensor(x) {
    if (x.dim() != 2) tensor = x.reshape({x.numel() == 0 ? 0 : x.numel() / x.size(-1), x.size(-1)});
    if (tensor.size(1) > 1 && tensor.stride(1) != 1) tensor = tensor.contiguous();
  }

  int64_t count() const { return tensor.size(0); }
  int64_t width() const { return tensor.size(1); }
  bool IsViewOf(const at::Tensor& x) const { return tensor.is_alias_of(x); }

  char* At(int64_t row, int64_t channel = 0) const {
    return static_cast<char*>(tensor.data_ptr()) +
           (row * tensor.stride(0) + channel) * tensor.element_size();
  }
};

}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_ROWS_H_
