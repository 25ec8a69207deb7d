// SPDX-License-Identifier: Apache-2.0
//
// Which computation serves a rotation on the NPU, and the cost model behind the choice.
//
// MODEL, NOT MEASURED. The constants are published figures of the Ascend 910B2 (48 vector cores at
// 1.85 GHz, 1.6 TB/s) and of the vector instruction table of the AscendC documentation
// (docs/zh/api/附录/Vector指令理论性能汇总.md: 64 fp32 elements per cycle for every instruction used
// here); the barrier cost is a published fit for the 910B3. What decides is the ratio between two
// modelled times, not their value.
#ifndef EAGLE3_QUAROT_ASCEND_PATH_CHOICE_H_
#define EAGLE3_QUAROT_ASCEND_PATH_CHOICE_H_

#include <cstdint>

#include "rotation_plan.h"
#include "row_tiling.h"

namespace eagle3_quarot {

enum class Path {
  kVectorKernel,  // the row kernel
  kTwoMatmuls,    // a product with Hd_m on the last axis, one with F on the first
  kOneMatmul,     // a product with the dense block
};

struct PathCost {
  double vector_us;       // infinite when the kernel does not take the plan
  double two_matmuls_us;  // infinite without a Hadamard part
  double one_matmul_us;   // with the dense block, the yardstick
};

/// Modelled times of one call with T * A rows, in microseconds.
PathCost ModelPathCost(const RotationPlan& plan, const RowShape& shape, uint32_t vector_cores);

/// The path of a call: the cheaper of kernel and two matmuls by the model; a dense Q has one way.
Path ChoosePath(const RotationPlan& plan, const RowShape& shape, uint32_t vector_cores);

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_PATH_CHOICE_H_
