// SPDX-License-Identifier: Apache-2.0
#include <acl/acl.h>
#include <c10/util/Exception.h>
#include <torch_npu/csrc/core/npu/NPUStream.h>
#include <torch_npu/csrc/framework/OpCommand.h>

#include "row_launch.h"

extern "C" void eagle3_quarot_launch_rows(eagle3_quarot::ElementType type, uint32_t cores, void* stream,
                                          const eagle3_quarot::RowArgs& args);

namespace eagle3_quarot {

uint32_t VectorCores() {
  static const uint32_t cores = [] {
    int64_t count = 0;
    const aclError error = aclGetDeviceCapability(0, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &count);
    TORCH_CHECK(error == ACL_SUCCESS && count > 0, "eagle3_quarot: the device reports ", count,
                " vector cores (aclGetDeviceCapability returned ", error, ")");
    return static_cast<uint32_t>(count);
  }();
  return cores;
}

void EnqueueRows(const char* op, ElementType type, uint32_t cores, const RowArgs& args) {
  // The handler runs later, on torch_npu's dispatch thread: everything it needs is captured.
  const aclrtStream stream = c10_npu::getCurrentNPUStream().stream();
  at_npu::native::OpCommand command;
  command.Name(op);
  command.SetCustomHandler([=]() -> int {
    eagle3_quarot_launch_rows(type, cores, stream, args);
    return 0;
  });
  command.Run();
}

}  // namespace eagle3_quarot
