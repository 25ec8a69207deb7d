// SPDX-License-Identifier: Apache-2.0
//
// Kernel entry points, one per element type, and their launchers.
//
// The launch syntax exists only in CANN's compiler; a host build of the kernels (the emulator in
// tests/kernels/ascendc) defines EAGLE3_QUAROT_HOST_EMULATION and brings its own launcher.
#include "kernel_operator.h"
#include "row_kernel.h"

namespace {

template <typename T>
__aicore__ inline void Run(const eagle3_quarot::RowArgs& args) {
  AscendC::TPipe pipe;
  eagle3_quarot::RowKernel<T> kernel(&pipe);
  kernel.Init(args);
  kernel.Process();
}

}  // namespace

extern "C" __global__ __aicore__ void eagle3_quarot_rows_bf16(eagle3_quarot::RowArgs args) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Run<bfloat16_t>(args);
}

extern "C" __global__ __aicore__ void eagle3_quarot_rows_f16(eagle3_quarot::RowArgs args) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Run<half>(args);
}

extern "C" __global__ __aicore__ void eagle3_quarot_rows_f32(eagle3_quarot::RowArgs args) {
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
  Run<float>(args);
}

#ifndef EAGLE3_QUAROT_HOST_EMULATION

extern "C" void eagle3_quarot_launch_rows(eagle3_quarot::ElementType type, uint32_t cores, void* stream,
                                          const eagle3_quarot::RowArgs& args) {
  switch (type) {
    case eagle3_quarot::ElementType::kBFloat16:
      eagle3_quarot_rows_bf16<<<cores, nullptr, stream>>>(args);
      break;
    case eagle3_quarot::ElementType::kFloat16:
      eagle3_quarot_rows_f16<<<cores, nullptr, stream>>>(args);
      break;
    case eagle3_quarot::ElementType::kFloat32:
      eagle3_quarot_rows_f32<<<cores, nullptr, stream>>>(args);
      break;
  }
}

#endif  // EAGLE3_QUAROT_HOST_EMULATION
