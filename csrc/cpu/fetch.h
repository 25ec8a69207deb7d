// SPDX-License-Identifier: Apache-2.0
//
// Memory that is brought into the second-level cache while a block is worked on; the first one is full
// of the block and its factors.
#ifndef EAGLE3_QUAROT_CPU_FETCH_H_
#define EAGLE3_QUAROT_CPU_FETCH_H_

#include "storage.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {

// The block that will be read next, in the order in which it will be: a few lines at a time through
// the longer part of the work on this one, because a processor waits for only so many lines at once.
class NextBlock {
 public:
  // `bytes` from `memory`, null for nothing, that will be read as `streams` (a power of two) pieces
  // side by side.
  EAGLE3_QUAROT_INLINE NextBlock(const void* memory, int64_t bytes, int64_t streams)
      : memory_(static_cast<const char*>(memory)),
        lines_(memory == nullptr ? 0 : bytes / kLine),
        shift_(__builtin_ctzll(streams)),
        piece_(bytes / streams) {}

  // The next kCount lines that have not been fetched, while there are as many.
  template <int kCount>
  EAGLE3_QUAROT_INLINE void Fetch() {
    if (fetched_ + kCount > lines_) return;
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i, ++fetched_) {
      const int64_t stream = fetched_ & ((int64_t{1} << shift_) - 1);
      __builtin_prefetch(memory_ + stream * piece_ + (fetched_ >> shift_) * kLine, 0, 2);
    }
  }

 private:
  const char* memory_;
  int64_t lines_;
  int shift_;
  int64_t piece_;
  int64_t fetched_ = 0;
};

// Where two vectors will be written, null for nothing.
template <class T>
EAGLE3_QUAROT_INLINE void FetchTarget(const T* target, int64_t i) {
  if (target == nullptr) return;
  const char* bytes = reinterpret_cast<const char*>(target + i);
  for (int64_t line = 0; line < static_cast<int64_t>(2 * kLanes * sizeof(T)); line += kLine) {
    __builtin_prefetch(bytes + line, 0, 2);
  }
}

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_FETCH_H_
