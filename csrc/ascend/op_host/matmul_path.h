// SPDX-License-Identifier: Apache-2.0
//
// The product with Q or Q^T through torch's matmul: what the vector kernel does not take.
#ifndef EAGLE3_QUAROT_ASCEND_MATMUL_PATH_H_
#define EAGLE3_QUAROT_ASCEND_MATMUL_PATH_H_

#include <ATen/core/Tensor.h>

#include "../op_kernel/row_args.h"
#include "rotation_tensors.h"

namespace eagle3_quarot {

/// `x` [n, c*b] of any float type, times Q (rotate) or Q^T (unrotate), as fp32 [n, c*b].
///
/// Matrices of +-1 are exact in every type, so matmuls run in x's type with the device's fp32
/// accumulation; the multiplication by s is fp32. A dense F is rounded to x's type once.
at::Tensor MatmulProduct(const at::Tensor& x, const RotationTensors& rotation, Direction direction);

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_MATMUL_PATH_H_
