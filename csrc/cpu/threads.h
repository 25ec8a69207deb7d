// SPDX-License-Identifier: Apache-2.0
//
// What every thread needs: the kernels of this processor, a share of the rows, scratch memory.
#ifndef EAGLE3_QUAROT_CPU_THREADS_H_
#define EAGLE3_QUAROT_CPU_THREADS_H_

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "row_transform.h"

namespace eagle3_quarot {
namespace cpu {

inline const Kernels& Native() {
  static const Kernels& kernels = SelectKernels(std::getenv("VLLM_EAGLE3_QUAROT_CPU_KERNEL"));
  return kernels;
}

// Channels that keep a thread busy for some tens of microseconds, well above the cost of waking it.
constexpr int64_t kChannelsPerThread = 65536;

inline int64_t RowsPerThread(int64_t channels) {
  return std::max<int64_t>(1, kChannelsPerThread / std::max<int64_t>(1, channels));
}

// Scratch memory of one thread. It grows to the largest size asked for and is kept.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(memory_); }

  float* Reserve(int64_t floats) {
    if (floats > size_) {
      std::free(memory_);
      memory_ = nullptr;
      size_ = 0;
      void* memory = nullptr;
      TORCH_CHECK(posix_memalign(&memory, 4 * kMaxLanes, floats * sizeof(float)) == 0,
                  "eagle3_quarot: out of memory");
      memory_ = static_cast<float*>(memory);
      size_ = floats;
    }
    return memory_;
  }

  static Scratch& OfThisThread() {
    static thread_local Scratch scratch;
    return scratch;
  }

 private:
  float* memory_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_THREADS_H_
