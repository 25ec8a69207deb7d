// SPDX-License-Identifier: Apache-2.0
//
// Rows times Q or Q^T, spread over torch's threads.
#ifndef EAGLE3_QUAROT_CPU_RUN_H_
#define EAGLE3_QUAROT_CPU_RUN_H_

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "rotation.h"
#include "rows.h"
#include "threads.h"

namespace eagle3_quarot {
namespace cpu {

// Outputs from here on (2 MB of 16-bit elements) leave the second-level caches before they are read.
constexpr int64_t kStreamedChannels = 1 << 20;

// Rows that go through the GEMM at once; bounds its fp32 copies.
constexpr int64_t kGemmRows = 1024;

// Rows to read and the rows of the same width that take their product.
struct Job {
  Rows source;
  Rows target;
};

// What a thread transforms at once: a row or a piece of one, of no channels beyond a row's end.
struct Item {
  const Job& job;
  int64_t row;
  int64_t first;
  int64_t channels;

  const char* Source() const { return channels > 0 ? job.source.At(row, first) : nullptr; }
  char* Target() const { return job.target.At(row, first); }
};

inline void Run(const Rotation& rotation, const std::vector<Job>& jobs) {
  const int64_t rows = jobs[0].source.count();
  if (rotation.uses_gemm()) {
    for (int64_t start = 0; start < rows; start += kGemmRows) {
      const int64_t count = std::min(kGemmRows, rows - start);
      for (const Job& job : jobs) {
        job.target.tensor.narrow(0, start, count)
            .copy_(rotation.Multiply(job.source.tensor.narrow(0, start, count)));
      }
    }
    return;
  }
  const Transform& transform = rotation.transform();
  // With few rows the blocks of a row are spread over the threads as well.
  const int64_t widest = std::max_element(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
                           return a.source.width() < b.source.width();
                         })->source.width();
  const int64_t count = static_cast<int64_t>(jobs.size());
  const bool whole_rows = rows * count >= 4 * at::get_num_threads();
  const int64_t piece = whole_rows ? widest : transform.block;
  if (piece == 0) return;
  const int64_t pieces = (widest + piece - 1) / piece;
  const auto item_at = [&](int64_t index) {
    const int64_t first = index % pieces * piece;
    const Job& job = jobs[index / pieces % count];
    return Item{job, index / pieces / count, first, std::min(piece, job.source.width() - first)};
  };
  const bool streams = !jobs[0].target.tensor.is_alias_of(jobs[0].source.tensor) &&
                       rows * widest * count >= kStreamedChannels;
  const Kernels& kernels = Native();
  at::parallel_for(
      0, rows * count * pieces, RowsPerThread(piece), [&](int64_t begin, int64_t end) {
        float* scratch = Scratch::OfThisThread().Reserve(ScratchFloats(transform));
        for (int64_t index = begin; index < end; ++index) {
          const Item item = item_at(index);
          if (item.channels <= 0) continue;
          const void* next = index + 1 < end ? item_at(index + 1).Source() : nullptr;
          kernels.transform_row(transform, item.first, item.channels,
                                DtypeFor(item.job.source.tensor), item.Source(), next,
                                DtypeFor(item.job.target.tensor), item.Target(), streams, scratch);
        }
        if (streams) kernels.finish_streaming();
      });
}

}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_RUN_H_
