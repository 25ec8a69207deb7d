// SPDX-License-Identifier: Apache-2.0
#include "path_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace eagle3_quarot {

namespace {

constexpr double kCyclesPerMicrosecond = 1850.0;
constexpr double kBytesPerMicrosecond = 1.6e6;    // HBM
constexpr double kFlopsPerMicrosecond = 260e6;    // 16-bit matmul as reached by large shapes
constexpr double kElementsPerCycle = 64.0;
constexpr double kBarrierCycles = 25.0;
constexpr double kLaunch = 5.0;                   // microseconds of one more kernel on the stream
constexpr double kCubeEdge = 128.0;               // inner sizes below this do not fill the cube
constexpr uint32_t kLargestRadix = 128;          // of a Hadamard matmul, see matmul_path.cpp
constexpr double kNever = std::numeric_limits<double>::infinity();

double Log2(uint32_t value) { return std::log2(static_cast<double>(value)); }

double VectorCyclesPerRow(const RotationPlan& plan) {
  const double hidden = plan.hidden;
  const double blocks = hidden / plan.block;
  // Cast in, two transposes, log2(m) stages, multiply, cast out; one barrier each.
  const double passes = 5.0 + Log2(plan.pow2);
  double cycles = passes * hidden / kElementsPerCycle + passes * kBarrierCycles;
  if (plan.factor > 1) {
    const double groups = plan.factor / 4.0;
    const double repeats = std::max(1.0, plan.pow2 / kElementsPerCycle);
    cycles += blocks * groups * ((12.0 + plan.factor) * repeats + 2.0 * kBarrierCycles);
  }
  return cycles;
}

double MatmulMicroseconds(double rows, double hidden, double inner, double weights, double element_bytes) {
  const double flops = 2.0 * rows * hidden * inner / std::min(1.0, inner / kCubeEdge);
  const double bytes = (2.0 * rows * hidden + weights) * element_bytes;
  return kLaunch + std::max(flops / kFlopsPerMicrosecond, bytes / kBytesPerMicrosecond);
}

}  // namespace

PathCost ModelPathCost(const RotationPlan& plan, const RowShape& shape, uint32_t vector_cores) {
  const double rows = static_cast<double>(shape.tokens) * shape.slices;
  const double hidden = plan.hidden;
  const double element_bytes = shape.element_bytes;
  const double block = plan.block;

  PathCost cost{kNever, kNever, kNever};
  if (VectorKernelRefusal(plan, shape).empty()) {
    const double rounds = std::ceil(rows / vector_cores);
    const double arithmetic = rounds * VectorCyclesPerRow(plan) / kCyclesPerMicrosecond;
    const double memory = 2.0 * rows * hidden * element_bytes / kBytesPerMicrosecond;
    cost.vector_us = kLaunch + std::max(arithmetic, memory);
  }
  if (plan.pow2 > 1) {
    // The multiplication by s, in fp32, and one matmul per group of index bits and for F.
    cost.two_matmuls_us = kLaunch + rows * hidden * (element_bytes + 4.0) / kBytesPerMicrosecond;
    for (uint32_t left = plan.pow2; left > 1;) {
      const uint32_t radix = std::min(left, kLargestRadix);
      cost.two_matmuls_us += MatmulMicroseconds(rows, hidden, radix, radix * radix, element_bytes);
      left /= radix;
    }
    if (plan.factor > 1) {
      const double k = plan.factor;
      cost.two_matmuls_us += MatmulMicroseconds(rows, hidden, k, k * k, element_bytes);
    }
  }
  cost.one_matmul_us = MatmulMicroseconds(rows, hidden, block, block * block, element_bytes);
  return cost;
}

Path ChoosePath(const RotationPlan& plan, const RowShape& shape, uint32_t vector_cores) {
  if (plan.pow2 <= 1) return Path::kOneMatmul;
  // A factored block is never multiplied out: its dense matrix would have to be kept on the device.
  const PathCost cost = ModelPathCost(plan, shape, vector_cores);
  return cost.vector_us <= cost.two_matmuls_us ? Path::kVectorKernel : Path::kTwoMatmuls;
}

}  // namespace eagle3_quarot
