// SPDX-License-Identifier: Apache-2.0
//
// Emulator of the AscendC subset the kernels use, found by `#include "kernel_operator.h"`.
//
// Own code, written from the public API documentation (project mirror-cann/asc-devkit on GitHub,
// pages cited in each header). The kernels compile unmodified against this and against CANN. A
// broken rule ends the process with "EMULATOR <rule>: ...".
//
//   core.h        state of a core, how a run ends     pipes.h       events, barriers, races
//   memory.h      Unified Buffer and global accesses  tensors.h     LocalTensor, GlobalTensor
//   queues.h      TPipe, TQue, TBuf                   dma.h         DataCopy
//   vector_ops.h  arithmetic, casts, reductions       transpose.h   TransDataTo5HD
//   statistics.h  instruction and bank counts         types.h       half, bfloat16_t
#ifndef EMULATOR_KERNEL_OPERATOR_H_
#define EMULATOR_KERNEL_OPERATOR_H_

#include "core.h"
#include "pipes.h"
#include "memory.h"
#include "types.h"
#include "tensors.h"
#include "statistics.h"
#include "queues.h"
#include "dma.h"
#include "vector_ops.h"
#include "transpose.h"

#endif  // EMULATOR_KERNEL_OPERATOR_H_
