// SPDX-License-Identifier: Apache-2.0
//
// The device under the ops: how many vector cores it has and how a launch reaches its stream.
// row_launch_npu.cpp implements it with torch_npu; tests implement it with the emulator.
#ifndef EAGLE3_QUAROT_ASCEND_ROW_LAUNCH_H_
#define EAGLE3_QUAROT_ASCEND_ROW_LAUNCH_H_

#include <cstdint>

#include "../op_kernel/row_args.h"

namespace eagle3_quarot {

/// Vector cores of the current device.
uint32_t VectorCores();

/// Puts a launch on the current stream under the name `op`; returns before it has run.
void EnqueueRows(const char* op, ElementType type, uint32_t cores, const RowArgs& args);

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROW_LAUNCH_H_
