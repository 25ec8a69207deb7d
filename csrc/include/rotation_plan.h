// SPDX-License-Identifier: Apache-2.0
//
// The factorised form of a residual rotation, shared by the AscendC kernel and its host code.
//
// Row vectors throughout: h' = h Q rotates, h = h' Q^T un-rotates. A plan describes
//
//     Q = I_{hidden/block} (x) [ diag(s) (F (x) Hd_m) ],      block = k * m,
//
// with F a k x k matrix of +-1, Hd_m the Sylvester-Hadamard matrix in natural order and s a
// vector of `block` fp32 values that carries both the signs and the scale 1/sqrt(block).
// For one block x, seen as a [k, m] array:
//
//     x Q^T:  t[j, :] = x[j, :] Hd_m;  y[i, :] = sum_j F[i, j] t[j, :];  y *= s   (un-rotation)
//     x Q:    x *= s;  t[j, :] = x[j, :] Hd_m;  y[i, :] = sum_j F[j, i] t[j, :]   (rotation)
//
// The K > 1 tables in use are not symmetric: a transposed F still gives an orthogonal, plausible
// and wrong result.
//
// The structure is plain data without member functions, so that the same header serves AscendC
// device code (where a function would need __aicore__) and host code. The CPU kernels build without
// this folder and take a Transform (cpu/row_transform.h): what a plan and its tensors become for one
// call, with addresses, the direction and the factor's codes.
#ifndef EAGLE3_QUAROT_ROTATION_PLAN_H_
#define EAGLE3_QUAROT_ROTATION_PLAN_H_

#include <cstdint>

namespace eagle3_quarot {

struct RotationPlan {
  uint32_t hidden;  // H: channels of one hidden state
  uint32_t block;   // b: size of the repeated diagonal block, divides H (b == H: one block)
  uint32_t factor;  // k: order of the small +-1 matrix F, 1 when there is none
  uint32_t pow2;    // m: size of the Sylvester-Hadamard factor, a power of two; b == k * m
};

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ROTATION_PLAN_H_
