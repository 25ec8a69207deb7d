// SPDX-License-Identifier: Apache-2.0
//
// Which instruction set runs: decided at run time, so that a library built on one machine (a shared
// cache folder, a wheel) serves every other one of the same architecture.
#include <cstring>

#include "row_transform.h"

namespace eagle3_quarot {
namespace cpu {

namespace generic {
extern const Kernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

const Kernels& SelectKernels(const char* limit) {
  const auto allowed = [limit](const Kernels& kernels) {
    return limit == nullptr || std::strcmp(limit, "auto") == 0 ||
           std::strcmp(limit, kernels.name) == 0;
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  if (has_avx512 && allowed(avx512::kKernels)) return avx512::kKernels;
  if (has_avx2 && allowed(avx2::kKernels)) return avx2::kKernels;
#else
  (void)allowed;
#endif
  return generic::kKernels;
}

}  // namespace cpu
}  // namespace eagle3_quarot
