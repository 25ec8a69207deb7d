// SPDX-License-Identifier: Apache-2.0
#include "row_tiling.h"

#include <algorithm>
#include <stdexcept>

#include "rotation_plan_checks.h"

namespace eagle3_quarot {

namespace {

constexpr uint32_t kFloat = 4;
// Mirrors of the kernel's own sizes; the emulator's budget check covers every launch of the tests
// and fails when the two disagree in the dangerous direction.
constexpr uint32_t kRowAreaPadding = 128;
constexpr uint32_t kSkewElements = 64;
constexpr uint32_t kRepeatElements = 64;

bool Splittable(const RowShape& shape) { return !shape.channel && shape.norm == Norm::kNone; }

bool ValidSpan(const RotationPlan& plan, uint32_t spans) {
  const uint32_t blocks = plan.hidden / plan.block;
  return blocks % spans == 0 && plan.hidden / spans % kSpanUnit == 0;
}

bool Fits(const RotationPlan& plan, const RowShape& shape, uint32_t span, uint32_t buffers) {
  return UnifiedBufferBytes(plan, shape, span, buffers) <= kUsableUnifiedBuffer;
}

// Spans per row and buffers per queue of the longest span that fits; zero spans when none does.
RowTiling LongestSpan(const RotationPlan& plan, const RowShape& shape) {
  const uint32_t most = Splittable(shape) ? plan.hidden / plan.block : 1;
  for (uint32_t spans = 1; spans <= most; ++spans) {
    if (!ValidSpan(plan, spans)) continue;
    const uint32_t span = plan.hidden / spans;
    // A shorter span with two buffers would halve the work per barrier, so one buffer is tried
    // before the next cut.
    for (uint32_t buffers = 2; buffers >= 1; --buffers) {
      if (Fits(plan, shape, span, buffers)) return {span, buffers, 0};
    }
  }
  return {0, 0, 0};
}

}  // namespace

uint32_t UnifiedBufferBytes(const RotationPlan& plan, const RowShape& shape, uint32_t span, uint32_t buffers) {
  uint32_t bytes = 3 * (span + kRowAreaPadding) * kFloat;  // two row areas and the weights
  if (plan.factor > 1) bytes += (12 * plan.pow2 + kSkewElements) * kFloat;
  if (shape.norm != Norm::kNone) {
    const uint32_t partial_sums = span / 2 / kRepeatElements;
    bytes += ((partial_sums + 7) / 8 * 8 + 16) * kFloat;
  }
  return bytes + 2 * buffers * span * shape.element_bytes;
}

std::string VectorKernelRefusal(const RotationPlan& plan, const RowShape& shape) {
  if (std::string error = PlanError(plan); !error.empty()) return error;
  if (plan.pow2 < kMinPow2) return "the Hadamard size " + std::to_string(plan.pow2) + " is below 16";
  if (plan.factor != 1 && (plan.factor % 4 != 0 || plan.factor > kMaxFactor)) {
    return "the factor " + std::to_string(plan.factor) + " is neither 1 nor a multiple of 4 up to 36";
  }
  if (plan.hidden % kSpanUnit != 0) {
    return "the hidden size " + std::to_string(plan.hidden) + " is not a multiple of 256";
  }
  if (shape.slices == 0 || shape.slices > kMaxSlices) {
    return std::to_string(shape.slices) + " hidden states, the kernel takes 1 to 8";
  }
  if (LongestSpan(plan, shape).span == 0) return "a row does not fit the Unified Buffer (" + Describe(plan) + ")";
  const uint64_t blocks = static_cast<uint64_t>(shape.tokens) * shape.slices * (plan.hidden / plan.block);
  if (blocks >= kMaxItems) return std::to_string(shape.tokens) + " tokens are more than the kernel counts";
  return {};
}

RowTiling TileRows(const RotationPlan& plan, const RowShape& shape, uint32_t cores) {
  RowTiling tiling = LongestSpan(plan, shape);
  const uint64_t rows = static_cast<uint64_t>(shape.tokens) * shape.slices;
  uint32_t spans = plan.hidden / tiling.span;
  // Few rows leave cores idle: blocks of a row are independent, so give them to more cores.
  const uint32_t most = Splittable(shape) ? plan.hidden / plan.block : spans;
  for (uint32_t finer = spans + 1; finer <= most && rows * finer <= cores; ++finer) {
    if (ValidSpan(plan, finer) && plan.hidden / finer >= kMinSplitSpan) spans = finer;
  }
  tiling.span = plan.hidden / spans;
  if (Fits(plan, shape, tiling.span, 2)) tiling.buffers = 2;
  tiling.cores = static_cast<uint32_t>(std::min<uint64_t>(rows * spans, cores));
  return tiling;
}

std::vector<uint8_t> EncodeFactor(const int8_t* matrix, uint32_t order, bool transpose) {
  std::vector<uint8_t> codes(order * order / 4);
  for (uint32_t group = 0; group < order / 4; ++group) {
    const uint32_t columns[4] = {2 * group, 2 * group + 1, order / 2 + 2 * group, order / 2 + 2 * group + 1};
    for (uint32_t output = 0; output < order; ++output) {
      int sign[4];
      for (uint32_t i = 0; i < 4; ++i) {
        sign[i] = transpose ? matrix[columns[i] * order + output] : matrix[output * order + columns[i]];
        if (sign[i] != 1 && sign[i] != -1) {
          throw std::invalid_argument("factor entry " + std::to_string(sign[i]) + ", every entry must be 1 or -1");
        }
      }
      const int x = sign[0] != sign[2] ? 1 : 0;
      const int y = sign[1] != sign[3] ? 1 : 0;
      const int z = sign[0] != sign[1] ? 1 : 0;
      const int negative = sign[0] < 0 ? 1 : 0;
      codes[group * order + output] = static_cast<uint8_t>(x + 2 * y + 4 * z + 8 * negative);
    }
  }
  return codes;
}

}  // namespace eagle3_quarot
