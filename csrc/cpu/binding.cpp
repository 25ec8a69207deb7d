// SPDX-License-Identifier: Apache-2.0
//
// torch.ops.eagle3_quarot on the CPU: checks, outputs, and rows spread over torch's threads.
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "checks.h"
#include "row_transform.h"
#include "rows.h"

namespace eagle3_quarot {
namespace cpu {
namespace {

// Channels that keep a thread busy for some tens of microseconds, well above the cost of waking it.
constexpr int64_t kChannelsPerThread = 65536;

// Outputs from here on (2 MB of 16-bit elements) leave the second-level caches before they are read.
constexpr int64_t kStreamedChannels = 1 << 20;

// Factors of a larger order go through torch's GEMM, and so do all without a Hadamard part.
constexpr int64_t kLargestSmallFactor = 256;

// Rows that go through the GEMM at once; bounds its fp32 copies.
constexpr int64_t kGemmRows = 1024;

const Kernels& Native() {
  static const Kernels& kernels = SelectKernels(std::getenv("VLLM_EAGLE3_QUAROT_CPU_KERNEL"));
  return kernels;
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

int64_t RowsPerThread(int64_t channels) {
  return std::max<int64_t>(1, kChannelsPerThread / std::max<int64_t>(1, channels));
}

// Q as one call sees it.
class Rotation {
 public:
  Rotation(const at::Tensor& signs, const at::Tensor& factor, int64_t power, Direction direction)
      : signs_(signs.contiguous()),
        factor_(factor.contiguous()),
        power_(power),
        direction_(direction),
        uses_gemm_(power == 1 || factor.size(0) > kLargestSmallFactor) {
    if (!uses_gemm_) {
      transform_ = MakeTransform(factor_.size(0), power, signs_.const_data_ptr<float>(),
                                 factor_.const_data_ptr<float>(), direction);
    }
  }

  void SetMultiplier(const at::Tensor& multiplier) {
    multiplier_ = multiplier.contiguous();
    transform_.multiplier = multiplier_.const_data_ptr<float>();
    transform_.multiplier_size = multiplier_.numel();
  }

  bool uses_gemm() const { return uses_gemm_; }
  const Transform& transform() const { return transform_; }
  int64_t block() const { return signs_.numel(); }

  // `x` [n, channels] of any float dtype times Q or Q^T, in fp32, where there is no kernel for it.
  at::Tensor Multiply(const at::Tensor& x) const {
    const int64_t order = factor_.size(0);
    at::Tensor y = x.to(at::kFloat);
    if (multiplier_.defined()) {
      y = y.reshape({-1, multiplier_.numel()}).mul(multiplier_);
    }
    y = y.reshape({-1, block()});
    const bool rotate = direction_ == Direction::kRotate;
    if (rotate) y = y.mul(signs_);
    if (power_ == 1) {
      y = at::mm(y, rotate ? factor_ : factor_.t());
    } else {
      y = at::matmul(rotate ? factor_.t() : factor_, Hadamard(y).view({-1, order, power_}));
    }
    y = y.reshape({-1, block()});
    if (!rotate) y.mul_(signs_);
    return y.reshape(x.sizes());
  }

 private:
  // fp32 `x` [n, block] with every run of `power_` channels transformed, a new tensor.
  at::Tensor Hadamard(const at::Tensor& x) const {
    const at::Tensor y = at::empty(x.sizes(), x.options());
    const float one = 1.0f;
    const Transform runs = MakeTransform(1, power_, nullptr, &one, direction_);
    const Rows source(x), target(y);
    at::parallel_for(0, source.count(), RowsPerThread(block()), [&](int64_t begin, int64_t end) {
      float* scratch = Scratch::OfThisThread().Reserve(ScratchFloats(runs));
      for (int64_t row = begin; row < end; ++row) {
        Native().transform_row(runs, 0, block(), Dtype::kFloat32, source.At(row), nullptr,
                               Dtype::kFloat32, target.At(row), false, scratch);
      }
    });
    return y;
  }

  at::Tensor signs_;
  at::Tensor factor_;
  at::Tensor multiplier_;
  int64_t power_;
  Direction direction_;
  bool uses_gemm_;
  Transform transform_;
};

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

void Run(const Rotation& rotation, const std::vector<Job>& jobs) {
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

at::Tensor Unrotate(const at::Tensor& x, const at::Tensor& signs, const at::Tensor& factor,
                    int64_t power) {
  CheckRotation("unrotate", signs, factor, power);
  CheckChannels("unrotate", "x", x, signs);
  at::Tensor out = at::empty(x.sizes(), x.options());
  Run(Rotation(signs, factor, power, Direction::kUnrotate), {{Rows(x), Rows(out)}});
  return out;
}

void UnrotateInPlace(at::Tensor x, const at::Tensor& signs, const at::Tensor& factor,
                     int64_t power) {
  CheckRotation("unrotate_", signs, factor, power);
  CheckChannels("unrotate_", "x", x, signs);
  at::assert_no_internal_overlap(x);
  const Rows rows(x);
  Run(Rotation(signs, factor, power, Direction::kUnrotate), {{rows, rows}});
  if (!rows.IsViewOf(x)) x.copy_(rows.tensor.view(x.sizes()));
}

at::Tensor Rotate(const at::Tensor& x, const at::Tensor& signs, const at::Tensor& factor,
                  int64_t power, const std::optional<at::Tensor>& multiplier) {
  CheckRotation("rotate", signs, factor, power);
  CheckChannels("rotate", "x", x, signs);
  Rotation rotation(signs, factor, power, Direction::kRotate);
  if (multiplier.has_value()) {
    CheckMultiplier("rotate", *multiplier, x, signs.numel());
    rotation.SetMultiplier(*multiplier);
  }
  at::Tensor out = at::empty(x.sizes(), x.options());
  Run(rotation, {{Rows(x), Rows(out)}});
  return out;
}

// [..., width of all parts together]
std::vector<int64_t> ConcatenatedShape(at::TensorList parts) {
  std::vector<int64_t> shape = parts[0].sizes().vec();
  shape.back() = 0;
  for (const at::Tensor& part : parts) shape.back() += part.size(-1);
  return shape;
}

at::Tensor UnrotateConcat(at::TensorList aux, const at::Tensor& signs, const at::Tensor& factor,
                          int64_t power) {
  CheckRotation("unrotate_concat", signs, factor, power);
  CheckList("unrotate_concat", "aux", aux, signs);
  at::Tensor out = at::empty(ConcatenatedShape(aux), aux[0].options());
  std::vector<Job> jobs;
  jobs.reserve(aux.size());
  const Rows target(out);
  int64_t first = 0;
  for (const at::Tensor& part : aux) {
    jobs.push_back({Rows(part), Rows(target.tensor.narrow(1, first, part.size(-1)))});
    first += part.size(-1);
  }
  Run(Rotation(signs, factor, power, Direction::kUnrotate), jobs);
  return out;
}

// One row of fp32 values at `row`, group by group.
void NormaliseRow(const float* row, at::TensorList gammas, float eps, Dtype dtype, char* target) {
  for (const at::Tensor& gamma : gammas) {
    Native().rms_norm(row, gamma.numel(), DtypeFor(gamma), gamma.const_data_ptr(), eps, dtype,
                      target);
    row += gamma.numel();
    target += gamma.numel() * ElementSize(dtype);
  }
}

at::Tensor UnrotateNorm(at::TensorList states, const at::Tensor& signs, const at::Tensor& factor,
                        int64_t power, at::TensorList gammas, double eps) {
  CheckRotation("unrotate_norm", signs, factor, power);
  CheckList("unrotate_norm", "states", states, signs);
  at::Tensor out = at::empty(ConcatenatedShape(states), states[0].options());
  const int64_t width = out.size(-1);
  CheckGammas("unrotate_norm", gammas, width, states[0]);
  std::vector<at::Tensor> scales;
  for (const at::Tensor& gamma : gammas) scales.push_back(gamma.contiguous());
  std::vector<Rows> sources;
  for (const at::Tensor& part : states) sources.emplace_back(part);
  const Rows target(out);
  const Dtype dtype = DtypeFor(out);
  const Rotation rotation(signs, factor, power, Direction::kUnrotate);
  const int64_t rows = target.count();
  const auto epsilon = static_cast<float>(eps);

  if (rotation.uses_gemm()) {
    for (int64_t start = 0; start < rows; start += kGemmRows) {
      const int64_t count = std::min(kGemmRows, rows - start);
      at::Tensor values = at::empty({count, width}, out.options().dtype(at::kFloat));
      int64_t first = 0;
      for (const Rows& source : sources) {
        values.narrow(1, first, source.width())
            .copy_(rotation.Multiply(source.tensor.narrow(0, start, count)));
        first += source.width();
      }
      const float* data = values.const_data_ptr<float>();
      at::parallel_for(0, count, RowsPerThread(width), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          NormaliseRow(data + row * width, scales, epsilon, dtype, target.At(start + row));
        }
      });
    }
    return out;
  }

  const Transform& transform = rotation.transform();
  const int64_t scratch_floats = ScratchFloats(transform);
  at::parallel_for(0, rows, RowsPerThread(width), [&](int64_t begin, int64_t end) {
    float* scratch = Scratch::OfThisThread().Reserve(scratch_floats + width + kMaxLanes);
    float* values = scratch + scratch_floats;
    for (int64_t row = begin; row < end; ++row) {
      int64_t first = 0;
      for (const Rows& source : sources) {
        const char* next = row + 1 < end ? source.At(row + 1) : nullptr;
        Native().transform_row(transform, first, source.width(), dtype, source.At(row), next,
                               Dtype::kFloat32, values + first, false, scratch);
        first += source.width();
      }
      NormaliseRow(values, scales, epsilon, dtype, target.At(row));
    }
  });
  return out;
}

template <class Id>
void UnrotateRowsOf(const Id* ids, int64_t count, const Rows& table, const Transform& transform,
                    int64_t vocab_start, int64_t vocab_end, const Rows& target) {
  const Dtype dtype = DtypeFor(table.tensor);
  const int64_t width = table.width();
  at::parallel_for(0, count, RowsPerThread(width), [&](int64_t begin, int64_t end) {
    float* scratch = Scratch::OfThisThread().Reserve(ScratchFloats(transform));
    const auto row_of = [&](int64_t id) -> const char* {
      return id < vocab_start || id >= vocab_end ? nullptr : table.At(id - vocab_start);
    };
    for (int64_t row = begin; row < end; ++row) {
      const char* source = row_of(ids[row]);
      if (source == nullptr) {
        std::memset(target.At(row), 0, width * ElementSize(dtype));
        continue;
      }
      const char* next = row + 1 < end ? row_of(ids[row + 1]) : nullptr;
      Native().transform_row(transform, 0, width, dtype, source, next, dtype, target.At(row),
                             false, scratch);
    }
  });
}

at::Tensor EmbeddingUnrotate(const at::Tensor& ids, const at::Tensor& table,
                             const at::Tensor& signs, const at::Tensor& factor, int64_t power,
                             int64_t vocab_start, int64_t vocab_end) {
  CheckRotation("embedding_unrotate", signs, factor, power);
  CheckChannels("embedding_unrotate", "table", table, signs);
  CheckEmbedding("embedding_unrotate", ids, table, vocab_start, vocab_end);
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(table.size(1));
  if (vocab_start == vocab_end) return at::zeros(shape, table.options());
  const Rotation rotation(signs, factor, power, Direction::kUnrotate);
  if (rotation.uses_gemm()) {
    const at::Tensor outside = ids.lt(vocab_start).logical_or(ids.ge(vocab_end)).view(-1);
    const at::Tensor rows = ids.reshape(-1).sub(vocab_start).masked_fill(outside, 0);
    at::Tensor out = rotation.Multiply(table.index_select(0, rows)).to(table.scalar_type());
    return out.masked_fill_(outside.unsqueeze(1), 0).view(shape);
  }
  at::Tensor out = at::empty(shape, table.options());
  const Rows target(out);
  const at::Tensor flat = ids.contiguous();
  if (ids.scalar_type() == at::kInt) {
    UnrotateRowsOf(flat.const_data_ptr<int32_t>(), flat.numel(), Rows(table), rotation.transform(),
                   vocab_start, vocab_end, target);
  } else {
    UnrotateRowsOf(flat.const_data_ptr<int64_t>(), flat.numel(), Rows(table), rotation.transform(),
                   vocab_start, vocab_end, target);
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(eagle3_quarot, CPU, library) {
  library.impl("unrotate", &Unrotate);
  library.impl("unrotate_", &UnrotateInPlace);
  library.impl("unrotate_concat", &UnrotateConcat);
  library.impl("unrotate_norm", &UnrotateNorm);
  library.impl("embedding_unrotate", &EmbeddingUnrotate);
  library.impl("rotate", &Rotate);
}

}  // namespace cpu
}  // namespace eagle3_quarot

// The instruction set that runs, for the log.
extern "C" __attribute__((visibility("default"))) const char* eagle3_quarot_cpu_kernel() {
  return eagle3_quarot::cpu::Native().name;
}
