// SPDX-License-Identifier: Apache-2.0
#include "checks.h"

#define EAGLE3_QUAROT_CHECK(condition, op, ...) \
  TORCH_CHECK_VALUE(condition, "eagle3_quarot::", op, ": ", __VA_ARGS__)

namespace eagle3_quarot {
namespace cpu {
namespace {

bool IsFloat(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

}  // namespace

std::string ShapeOf(const at::Tensor& tensor) {
  std::string text = "(";
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(tensor.size(axis));
  }
  return text + (tensor.dim() == 1 ? ",)" : ")");
}

std::string DtypeOf(const at::Tensor& tensor) {
  const auto names = c10::getDtypeNames(tensor.scalar_type());
  return "torch." + std::string(names.first);
}

void CheckRotation(const char* op, const at::Tensor& signs, const at::Tensor& factor,
                   int64_t power) {
  const int64_t block = signs.dim() == 1 ? signs.size(0) : 0;
  EAGLE3_QUAROT_CHECK(block > 0 && factor.dim() == 2 && factor.size(0) == factor.size(1) &&
                          factor.size(0) * power == block && (power & (power - 1)) == 0,
                      op, "signs ", ShapeOf(signs), ", factor ", ShapeOf(factor), " and power ",
                      power, " are not [k*m], [k, k] and a power of two m");
  EAGLE3_QUAROT_CHECK(signs.scalar_type() == at::kFloat && factor.scalar_type() == at::kFloat, op,
                      "signs are ", DtypeOf(signs), " and factor is ", DtypeOf(factor),
                      "; torch.float32 expected");
  EAGLE3_QUAROT_CHECK(signs.device() == factor.device(), op, "signs are on ", signs.device(),
                      ", factor on ", factor.device());
}

void CheckChannels(const char* op, const std::string& name, const at::Tensor& x,
                   const at::Tensor& signs) {
  EAGLE3_QUAROT_CHECK(IsFloat(x), op, name, " is ", DtypeOf(x),
                      "; float32, bfloat16 or float16 expected");
  const int64_t block = signs.size(0);
  EAGLE3_QUAROT_CHECK(x.dim() > 0 && x.size(-1) % block == 0, op, name, " has shape ", ShapeOf(x),
                      "; its last axis is no multiple of the rotation's block of ", block,
                      " channels");
  EAGLE3_QUAROT_CHECK(signs.device() == x.device(), op, name, " is on ", x.device(),
                      ", the rotation on ", signs.device(), "; use Rotation.plan_on(device)");
}

void CheckList(const char* op, const char* name, at::TensorList parts, const at::Tensor& signs) {
  EAGLE3_QUAROT_CHECK(!parts.empty(), op, name, " is an empty list");
  const at::Tensor& first = parts[0];
  for (size_t index = 0; index < parts.size(); ++index) {
    const at::Tensor& part = parts[index];
    const std::string label = std::string(name) + "[" + std::to_string(index) + "]";
    CheckChannels(op, label, part, signs);
    EAGLE3_QUAROT_CHECK(
        part.scalar_type() == first.scalar_type() &&
            part.sizes().slice(0, part.dim() - 1) == first.sizes().slice(0, first.dim() - 1),
        op, label, " is ", DtypeOf(part), " ", ShapeOf(part), ", which does not go beside ", name,
        "[0], ", DtypeOf(first), " ", ShapeOf(first));
  }
}

void CheckGammas(const char* op, at::TensorList gammas, int64_t width, const at::Tensor& x) {
  std::string shapes;
  int64_t covered = 0;
  bool vectors = true;
  for (const at::Tensor& gamma : gammas) {
    if (!shapes.empty()) shapes += ", ";
    shapes += ShapeOf(gamma);
    vectors &= gamma.dim() == 1 && gamma.numel() > 0;
    covered += gamma.numel();
  }
  EAGLE3_QUAROT_CHECK(vectors && covered == width, op, "norm scales of shapes [", shapes,
                      "] do not cover ", width, " channels");
  for (const at::Tensor& gamma : gammas) {
    EAGLE3_QUAROT_CHECK(IsFloat(gamma) && gamma.device() == x.device(), op, "a norm scale is ",
                        DtypeOf(gamma), " on ", gamma.device(),
                        "; float32, bfloat16 or float16 on ", x.device(), " expected");
  }
}

void CheckEmbedding(const char* op, const at::Tensor& ids, const at::Tensor& table,
                    int64_t vocab_start, int64_t vocab_end) {
  EAGLE3_QUAROT_CHECK((ids.scalar_type() == at::kInt || ids.scalar_type() == at::kLong) &&
                          ids.device() == table.device(),
                      op, "ids are ", DtypeOf(ids), " on ", ids.device(), "; int32 or int64 on ",
                      table.device(), " expected");
  EAGLE3_QUAROT_CHECK(table.dim() == 2, op, "table has shape ", ShapeOf(table),
                      "; [V, H] expected");
  EAGLE3_QUAROT_CHECK(0 <= vocab_end - vocab_start && vocab_end - vocab_start <= table.size(0), op,
                      "ids from ", vocab_start, " to before ", vocab_end, " do not fit a table of ",
                      table.size(0), " rows");
}

void CheckMultiplier(const char* op, const at::Tensor& multiplier, const at::Tensor& x,
                     int64_t block) {
  EAGLE3_QUAROT_CHECK(
      multiplier.dim() == 1 && multiplier.numel() > 0 && multiplier.numel() % block == 0 &&
          x.size(-1) % multiplier.numel() == 0 && multiplier.scalar_type() == at::kFloat &&
          multiplier.device() == x.device(),
      op, "multiplier is ", DtypeOf(multiplier), " ", ShapeOf(multiplier), " on ",
      multiplier.device(), "; torch.float32 [H] on ", x.device(), " expected, H a multiple of ",
      block, " channels and x, ", ShapeOf(x), ", a multiple of H wide");
}

}  // namespace cpu
}  // namespace eagle3_quarot
