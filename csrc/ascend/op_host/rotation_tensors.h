// SPDX-License-Identifier: Apache-2.0
//
// The rotation as the ops receive it, and what the kernel needs besides.
#ifndef EAGLE3_QUAROT_ASCEND_ROTATION_TENSORS_H_
#define EAGLE3_QUAROT_ASCEND_ROTATION_TENSORS_H_

#include <ATen/core/Tensor.h>

#include "rotation_plan.h"

namespace eagle3_quarot {

struct RotationTensors {
  const at::Tensor& signs;   // s, fp32 [b]
  const at::Tensor& factor;  // F, fp32 [k, k]
  int64_t power;             // m

  /// The plan for hidden states of `hidden` channels.
  RotationPlan PlanFor(int64_t hidden) const;
};

/// Raises unless the three are [k*m], [k, k] and a power of two m, fp32 and on one device.
void CheckRotation(const char* op, const RotationTensors& rotation);

/// Raises unless `x` [..., n*b] is a float tensor beside the rotation.
void CheckChannels(const char* op, const char* name, const at::Tensor& x, const RotationTensors& rotation);

/// The codes of SmallFactor on F's device, none for F = [[1]]; undefined when the kernel cannot take
/// F because it is neither that nor a matrix of +-1.
///
/// The first call for a factor copies it to the host, which waits for the device; it happens in
/// the warm-up, before any graph is captured. Later calls with the same tensor find the codes in a
/// cache that holds the factor weakly and notices in-place changes.
at::Tensor FactorCodes(const at::Tensor& factor, bool transpose);

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROTATION_TENSORS_H_
