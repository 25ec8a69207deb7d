// SPDX-License-Identifier: Apache-2.0
//
// How a launch of the row kernel is cut: span, buffering, number of cores. Host code, no torch.
#ifndef EAGLE3_QUAROT_ASCEND_ROW_TILING_H_
#define EAGLE3_QUAROT_ASCEND_ROW_TILING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "../op_kernel/row_args.h"
#include "rotation_plan.h"

namespace eagle3_quarot {

/// Unified Buffer a kernel may use: 192 KB less 256 B and the 8 KB reserved by the compiler.
constexpr uint32_t kUsableUnifiedBuffer = 192 * 1024 - 256 - 8 * 1024;
/// Shorter spans than this make DMA transfers of a few hundred bytes.
constexpr uint32_t kMinSplitSpan = 512;
constexpr uint64_t kMaxItems = uint64_t{1} << 31;  // work items are counted in 32 bits

struct RowShape {
  uint32_t tokens;
  uint32_t slices;
  uint32_t element_bytes;  // 2 or 4
  Norm norm;
  bool channel;  // a per-channel multiplier is given: spans are whole rows
};

struct RowTiling {
  uint32_t span;
  uint32_t buffers;
  uint32_t cores;
};

/// Unified Buffer bytes of a launch.
uint32_t UnifiedBufferBytes(const RotationPlan& plan, const RowShape& shape, uint32_t span, uint32_t buffers);

/// Empty when the vector kernel takes this plan, otherwise why not.
std::string VectorKernelRefusal(const RotationPlan& plan, const RowShape& shape);

/// The cut of a launch; call only when VectorKernelRefusal is empty. No cores when T == 0.
RowTiling TileRows(const RotationPlan& plan, const RowShape& shape, uint32_t cores);

/// The codes of SmallFactor for a row-major k x k matrix of +-1; `transpose` for a rotation.
/// Throws std::invalid_argument when an entry is not +-1.
std::vector<uint8_t> EncodeFactor(const int8_t* matrix, uint32_t order, bool transpose);

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROW_TILING_H_
