// SPDX-License-Identifier: Apache-2.0
//
// torch.ops.eagle3_quarot on the NPU: checks, output, path, launch. The schemas are defined in
// Python (vllm_eagle3_quarot/ops/schemas.py); this adds the implementations of one dispatch key.
//
// No op waits for the device, except the first one that meets a new small factor (FactorCodes).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsqrt.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "matmul_path.h"
#include "path_choice.h"
#include "rotation_tensors.h"
#include "row_launch.h"
#include "row_tiling.h"

#ifndef EAGLE3_QUAROT_DISPATCH_KEY
#define EAGLE3_QUAROT_DISPATCH_KEY PrivateUse1
#endif

namespace eagle3_quarot {

namespace {

uint64_t Address(const at::Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.const_data_ptr()); }

ElementType TypeOf(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBFloat16) return ElementType::kBFloat16;
  return tensor.scalar_type() == at::kHalf ? ElementType::kFloat16 : ElementType::kFloat32;
}

/// `x` [..., c] as [n, c] with channels next to each other; rows may be apart.
at::Tensor AsRows(const at::Tensor& x) {
  const at::Tensor rows = x.dim() == 2 ? x : x.reshape({-1, x.size(-1)});
  return rows.stride(1) == 1 ? rows : rows.contiguous();
}

/// One call of the row kernel, or what keeps it from being one.
class RowCall {
 public:
  RowCall(const char* op, const RotationTensors& rotation, const at::Tensor& like, int64_t hidden)
      : op_(op), rotation_(rotation), type_(TypeOf(like)), element_bytes_(static_cast<uint32_t>(like.element_size())) {
    args_.plan = rotation.PlanFor(hidden);
  }

  void AddSource(const at::Tensor& rows, int64_t first_channel = 0) {
    if (args_.slices < kMaxSlices) {
      args_.sources[args_.slices] = Address(rows) + static_cast<uint64_t>(first_channel) * element_bytes_;
      args_.strides[args_.slices] = static_cast<uint64_t>(rows.stride(0));
    }
    ++args_.slices;
  }

  /// The multiplier of the next slice, fp32 or of the rows' type.
  void AddChannel(const at::Tensor& channel, int64_t first = 0) {
    if (channels_ < kMaxSlices) {
      args_.channels[channels_] = Address(channel) + static_cast<uint64_t>(first) * channel.element_size();
      args_.channel_is_float = channel.scalar_type() == at::kFloat ? 1 : 0;
    }
    ++channels_;
  }

  RowArgs& args() { return args_; }

  /// Whether the vector kernel serves `tokens` rows of every source.
  bool TakesVectorKernel(int64_t tokens) {
    if (tokens >= static_cast<int64_t>(kMaxItems)) return false;
    args_.tokens = static_cast<uint32_t>(tokens);
    if (ChoosePath(args_.plan, Shape(), VectorCores()) != Path::kVectorKernel) return false;
    codes_ = FactorCodes(rotation_.factor, args_.direction == Direction::kRotate);
    return codes_.defined();
  }

  void Launch(const at::Tensor& out) {
    const RowTiling tiling = TileRows(args_.plan, Shape(), VectorCores());
    if (tiling.cores == 0) return;
    const at::Tensor scale = rotation_.signs.contiguous();
    args_.span = tiling.span;
    args_.buffers = tiling.buffers;
    args_.scale = Address(scale);
    args_.out = Address(out);
    if (args_.plan.factor > 1) args_.factor_codes = Address(codes_);
    EnqueueRows(op_, type_, tiling.cores, args_);
  }

 private:
  RowShape Shape() const { return {args_.tokens, args_.slices, element_bytes_, args_.norm, channels_ > 0}; }

  const char* op_;
  const RotationTensors& rotation_;
  ElementType type_;
  uint32_t element_bytes_;
  RowArgs args_{};
  uint32_t channels_ = 0;
  at::Tensor codes_;
};

void UnrotateRows(const char* op, const at::Tensor& rows, const RotationTensors& rotation, const at::Tensor& out) {
  RowCall call(op, rotation, rows, rows.size(1));
  call.AddSource(rows);
  if (call.TakesVectorKernel(rows.size(0))) {
    call.Launch(out);
  } else {
    out.copy_(MatmulProduct(rows, rotation, Direction::kUnrotate));
  }
}

at::Tensor Unrotate(const at::Tensor& x, const at::Tensor& signs, const at::Tensor& factor, int64_t power) {
  const RotationTensors rotation{signs, factor, power};
  CheckRotation("unrotate", rotation);
  CheckChannels("unrotate", "x", x, rotation);
  at::Tensor out = at::empty(x.sizes(), x.options());
  UnrotateRows("eagle3_quarot_unrotate", AsRows(x), rotation, out.view({-1, x.size(-1)}));
  return out;
}

void UnrotateInPlace(at::Tensor& x, const at::Tensor& signs, const at::Tensor& factor, int64_t power) {
  const RotationTensors rotation{signs, factor, power};
  CheckRotation("unrotate_", rotation);
  CheckChannels("unrotate_", "x", x, rotation);
  if (x.is_contiguous()) {
    const at::Tensor rows = x.view({-1, x.size(-1)});
    UnrotateRows("eagle3_quarot_unrotate_", rows, rotation, rows);
  } else {
    x.copy_(Unrotate(x, signs, factor, power));
  }
}

void CheckList(const char* op, const char* name, at::TensorList parts, const RotationTensors& rotation) {
  TORCH_CHECK_VALUE(!parts.empty(), "eagle3_quarot::", op, ": ", name, " is an empty list");
  const at::Tensor& first = parts[0];
  for (const at::Tensor& part : parts) {
    CheckChannels(op, name, part, rotation);
    TORCH_CHECK_VALUE(part.scalar_type() == first.scalar_type() && part.dim() == first.dim() &&
                          part.sizes().slice(0, part.dim() - 1) == first.sizes().slice(0, first.dim() - 1),
                      "eagle3_quarot::", op, ": ", name, " holds ", part.scalar_type(), " ", part.sizes(),
                      ", which does not go beside ", first.scalar_type(), " ", first.sizes());
  }
}

bool SameWidth(at::TensorList parts) {
  for (const at::Tensor& part : parts) {
    if (part.size(-1) != parts[0].size(-1)) return false;
  }
  return true;
}

std::vector<int64_t> ConcatenatedShape(at::TensorList parts) {
  std::vector<int64_t> shape = parts[0].sizes().vec();
  shape.back() = 0;
  for (const at::Tensor& part : parts) shape.back() += part.size(-1);
  return shape;
}

at::Tensor UnrotateConcat(at::TensorList aux, const at::Tensor& signs, const at::Tensor& factor, int64_t power) {
  const RotationTensors rotation{signs, factor, power};
  CheckRotation("unrotate_concat", rotation);
  CheckList("unrotate_concat", "aux", aux, rotation);
  RowCall call("eagle3_quarot_unrotate_concat", rotation, aux[0], aux[0].size(-1));
  std::vector<at::Tensor> rows;
  for (const at::Tensor& part : aux) rows.push_back(AsRows(part));
  for (const at::Tensor& part : rows) call.AddSource(part);
  if (!SameWidth(aux) || !call.TakesVectorKernel(rows[0].size(0))) {
    return Unrotate(at::cat(aux, -1), signs, factor, power);
  }
  at::Tensor out = at::empty(ConcatenatedShape(aux), aux[0].options());
  call.Launch(out);
  return out;
}

at::Tensor NormByMatmul(at::TensorList states, const RotationTensors& rotation, at::TensorList gammas, double eps) {
  const at::Tensor joined = at::cat(states, -1);
  const at::Tensor natural = MatmulProduct(AsRows(joined), rotation, Direction::kUnrotate);
  std::vector<at::Tensor> groups;
  int64_t first = 0;
  for (const at::Tensor& gamma : gammas) {
    const at::Tensor group = natural.narrow(1, first, gamma.size(0));
    groups.push_back(group * at::rsqrt(group.square().mean(1, true) + eps) * gamma);
    first += gamma.size(0);
  }
  return at::cat(groups, 1).to(joined.scalar_type()).reshape(joined.sizes());
}

at::Tensor UnrotateNorm(at::TensorList states, const at::Tensor& signs, const at::Tensor& factor, int64_t power,
                        at::TensorList gammas, double eps) {
  const RotationTensors rotation{signs, factor, power};
  CheckRotation("unrotate_norm", rotation);
  CheckList("unrotate_norm", "states", states, rotation);
  const int64_t width = ConcatenatedShape(states).back();
  const int64_t hidden = states[0].size(-1);
  const at::ScalarType rows_type = states[0].scalar_type();
  int64_t covered = 0;
  bool one_type = true;
  bool per_slice = gammas.size() == states.size();
  for (const at::Tensor& gamma : gammas) {
    TORCH_CHECK_VALUE(gamma.dim() == 1 && gamma.is_floating_point() && gamma.device() == signs.device(),
                      "eagle3_quarot::unrotate_norm: a norm scale is ", gamma.scalar_type(), " ", gamma.sizes(), " on ",
                      gamma.device(), "; a float vector on ", signs.device(), " expected");
    covered += gamma.size(0);
    per_slice = per_slice && gamma.size(0) == hidden;
    one_type = one_type && gamma.is_contiguous() && gamma.scalar_type() == gammas[0].scalar_type() &&
               (gamma.scalar_type() == at::kFloat || gamma.scalar_type() == rows_type);
  }
  TORCH_CHECK_VALUE(covered == width, "eagle3_quarot::unrotate_norm: norm scales cover ", covered, " of ", width,
                    " channels");

  RowCall call("eagle3_quarot_unrotate_norm", rotation, states[0], hidden);
  std::vector<at::Tensor> rows;
  for (const at::Tensor& part : states) rows.push_back(AsRows(part));
  for (size_t i = 0; i < rows.size(); ++i) {
    call.AddSource(rows[i]);
    if (per_slice) {
      call.AddChannel(gammas[i]);
    } else {
      call.AddChannel(gammas[0], static_cast<int64_t>(i) * hidden);
    }
  }
  call.args().norm = per_slice ? Norm::kSlice : Norm::kConcat;
  call.args().epsilon = static_cast<float>(eps);
  const bool groups_fit = per_slice || gammas.size() == 1;
  if (!SameWidth(states) || !groups_fit || !one_type || !call.TakesVectorKernel(rows[0].size(0))) {
    return NormByMatmul(states, rotation, gammas, eps);
  }
  at::Tensor out = at::empty(ConcatenatedShape(states), states[0].options());
  call.Launch(out);
  return out;
}

at::Tensor EmbeddingUnrotate(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& signs,
                             const at::Tensor& factor, int64_t power, int64_t vocab_start, int64_t vocab_end) {
  const RotationTensors rotation{signs, factor, power};
  CheckRotation("embedding_unrotate", rotation);
  CheckChannels("embedding_unrotate", "table", table, rotation);
  TORCH_CHECK_VALUE((ids.scalar_type() == at::kInt || ids.scalar_type() == at::kLong) && ids.device() == table.device(),
                    "eagle3_quarot::embedding_unrotate: ids are ", ids.scalar_type(), " on ", ids.device(),
                    "; int or long on ", table.device(), " expected");
  TORCH_CHECK_VALUE(table.dim() == 2, "eagle3_quarot::embedding_unrotate: table has shape ", table.sizes(),
                    "; [V, H] expected");
  TORCH_CHECK_VALUE(vocab_start <= vocab_end && vocab_end - vocab_start <= table.size(0),
                    "eagle3_quarot::embedding_unrotate: ids from ", vocab_start, " to before ", vocab_end,
                    " do not fit a table of ", table.size(0), " rows");
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(table.size(1));
  const at::Tensor flat = ids.reshape({-1}).contiguous();
  const at::Tensor rows = AsRows(table);

  RowCall call("eagle3_quarot_embedding_unrotate", rotation, table, table.size(1));
  call.AddSource(rows);
  call.args().ids = Address(flat);
  call.args().id_bytes = static_cast<uint32_t>(flat.element_size());
  call.args().vocab_start = vocab_start;
  call.args().vocab_end = vocab_end;
  if (call.TakesVectorKernel(flat.size(0))) {
    at::Tensor out = at::empty(shape, table.options());
    call.Launch(out);
    return out;
  }
  if (vocab_start == vocab_end) return at::empty(shape, table.options()).zero_();
  const at::Tensor outside = (flat < vocab_start).logical_or(flat >= vocab_end);
  const at::Tensor found = rows.index_select(0, (flat - vocab_start).masked_fill(outside, 0));
  const at::Tensor natural = MatmulProduct(found, rotation, Direction::kUnrotate);
  return natural.masked_fill(outside.unsqueeze(1), 0).to(table.scalar_type()).reshape(shape);
}

at::Tensor Rotate(const at::Tensor& x, const at::Tensor& signs, const at::Tensor& factor, int64_t power,
                  const std::optional<at::Tensor>& multiplier) {
  const RotationTensors rotation{signs, factor, power};
  CheckRotation("rotate", rotation);
  CheckChannels("rotate", "x", x, rotation);
  int64_t hidden = x.size(-1);
  if (multiplier.has_value()) {
    const at::Tensor& values = *multiplier;
    TORCH_CHECK_VALUE(values.dim() == 1 && values.scalar_type() == at::kFloat && values.device() == x.device() &&
                          values.size(0) > 0 && values.size(0) % signs.size(0) == 0 && hidden % values.size(0) == 0,
                      "eagle3_quarot::rotate: multiplier is ", values.scalar_type(), " ", values.sizes(), " on ",
                      values.device(), "; float [H] beside x expected, H a multiple of ", signs.size(0),
                      " channels and x, ", x.sizes(), ", a multiple of H wide");
    hidden = values.size(0);
  }
  const at::Tensor rows = AsRows(x);
  const at::Tensor channel = multiplier.has_value() ? multiplier->contiguous() : at::Tensor();

  RowCall call("eagle3_quarot_rotate", rotation, x, hidden);
  call.args().direction = Direction::kRotate;
  for (int64_t first = 0; first < rows.size(1); first += hidden) {
    call.AddSource(rows, first);
    if (channel.defined()) call.AddChannel(channel);
  }
  at::Tensor out = at::empty(x.sizes(), x.options());
  if (call.TakesVectorKernel(rows.size(0))) {
    call.Launch(out);
    return out;
  }
  at::Tensor scaled = rows;
  if (channel.defined()) scaled = rows.to(at::kFloat).reshape({-1, hidden}).mul(channel).reshape(rows.sizes());
  return out.copy_(MatmulProduct(scaled, rotation, Direction::kRotate).reshape(x.sizes()));
}

}  // namespace

}  // namespace eagle3_quarot

TORCH_LIBRARY_IMPL(eagle3_quarot, EAGLE3_QUAROT_DISPATCH_KEY, library) {
  library.impl("unrotate", &eagle3_quarot::Unrotate);
  library.impl("unrotate_", &eagle3_quarot::UnrotateInPlace);
  library.impl("unrotate_concat", &eagle3_quarot::UnrotateConcat);
  library.impl("unrotate_norm", &eagle3_quarot::UnrotateNorm);
  library.impl("embedding_unrotate", &eagle3_quarot::EmbeddingUnrotate);
  library.impl("rotate", &eagle3_quarot::Rotate);
}
