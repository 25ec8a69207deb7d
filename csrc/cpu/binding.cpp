// SPDX-License-Identifier: Apache-2.0
//
// torch.ops.eagle3_quarot on the CPU: checks and outputs.
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "checks.h"
#include "rotation.h"
#include "row_transform.h"
#include "rows.h"
#include "run.h"
#include "threads.h"

namespace eagle3_quarot {
namespace cpu {
namespace {

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
