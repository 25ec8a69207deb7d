// SPDX-License-Identifier: Apache-2.0
//
// Host-side validation of a RotationPlan, one place for all back ends.
#ifndef EAGLE3_QUAROT_ROTATION_PLAN_CHECKS_H_
#define EAGLE3_QUAROT_ROTATION_PLAN_CHECKS_H_

#include <string>

#include "rotation_plan.h"

namespace eagle3_quarot {

inline bool IsPowerOfTwo(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

/// The plan's numbers in the order a reader expects them in a message.
inline std::string Describe(const RotationPlan& plan) {
  return "hidden " + std::to_string(plan.hidden) + ", block " + std::to_string(plan.block) +
         " = factor " + std::to_string(plan.factor) + " x power of two " +
         std::to_string(plan.pow2);
}

/// Empty when the plan is consistent, otherwise what is wrong with it.
inline std::string PlanError(const RotationPlan& plan) {
  if (plan.hidden == 0 || plan.block == 0 || plan.factor == 0) {
    return "a size is zero (" + Describe(plan) + ")";
  }
  if (!IsPowerOfTwo(plan.pow2)) return "the Hadamard size is not a power of two (" + Describe(plan) + ")";
  if (static_cast<uint64_t>(plan.factor) * plan.pow2 != plan.block) {
    return "the block is not factor times power of two (" + Describe(plan) + ")";
  }
  if (plan.hidden % plan.block != 0) return "the block does not divide the hidden size (" + Describe(plan) + ")";
  return {};
}

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ROTATION_PLAN_CHECKS_H_
