// SPDX-License-Identifier: Apache-2.0
#include "rotation_tensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "row_tiling.h"

namespace eagle3_quarot {

namespace {

struct CachedCodes {
  c10::weak_intrusive_ptr<c10::TensorImpl> factor;
  uint32_t version;
  bool transpose;
  at::Tensor codes;
};

uint32_t VersionOf(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

at::Tensor Encode(const at::Tensor& factor, bool transpose) {
  const at::Tensor host = factor.to(at::kCPU).contiguous();
  const float* values = host.const_data_ptr<float>();
  if (host.numel() == 1 && values[0] != 1.0f) return {};
  std::vector<int8_t> matrix(static_cast<size_t>(host.numel()));
  for (size_t i = 0; i < matrix.size(); ++i) {
    if (values[i] != 1.0f && values[i] != -1.0f) return {};
    matrix[i] = values[i] > 0.0f ? 1 : -1;
  }
  const std::vector<uint8_t> codes = EncodeFactor(matrix.data(), static_cast<uint32_t>(host.size(0)), transpose);
  at::Tensor result = at::empty({static_cast<int64_t>(codes.size())}, host.options().dtype(at::kByte));
  std::memcpy(result.mutable_data_ptr<uint8_t>(), codes.data(), codes.size());
  return result.to(factor.device());
}

}  // namespace

RotationPlan RotationTensors::PlanFor(int64_t hidden) const {
  return {static_cast<uint32_t>(hidden), static_cast<uint32_t>(signs.size(0)), static_cast<uint32_t>(factor.size(0)),
          static_cast<uint32_t>(power)};
}

void CheckRotation(const char* op, const RotationTensors& rotation) {
  const at::Tensor& signs = rotation.signs;
  const at::Tensor& factor = rotation.factor;
  const int64_t m = rotation.power;
  TORCH_CHECK_VALUE(signs.dim() == 1 && factor.dim() == 2 && factor.size(0) == factor.size(1) && signs.size(0) > 0 &&
                        m > 0 && (m & (m - 1)) == 0 && factor.size(0) * m == signs.size(0),
                    "eagle3_quarot::", op, ": signs ", signs.sizes(), ", factor ", factor.sizes(), " and power ", m,
                    " are not [k*m], [k, k] and a power of two m");
  TORCH_CHECK_VALUE(signs.scalar_type() == at::kFloat && factor.scalar_type() == at::kFloat, "eagle3_quarot::", op,
                    ": signs are ", signs.scalar_type(), " and factor is ", factor.scalar_type(), "; float expected");
  TORCH_CHECK_VALUE(signs.device() == factor.device(), "eagle3_quarot::", op, ": signs are on ", signs.device(),
                    ", factor on ", factor.device());
}

void CheckChannels(const char* op, const char* name, const at::Tensor& x, const RotationTensors& rotation) {
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_VALUE(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf, "eagle3_quarot::", op, ": ", name,
                    " is ", type, "; float, bfloat16 or half expected");
  const int64_t block = rotation.signs.size(0);
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(-1) > 0 && x.size(-1) % block == 0, "eagle3_quarot::", op, ": ", name, " has shape ",
                    x.sizes(), "; its last axis is no multiple of the rotation's block of ", block, " channels");
  TORCH_CHECK_VALUE(x.device() == rotation.signs.device(), "eagle3_quarot::", op, ": ", name, " is on ", x.device(),
                    ", the rotation on ", rotation.signs.device(), "; use Rotation.plan_on(device)");
}

at::Tensor FactorCodes(const at::Tensor& factor, bool transpose) {
  // Never destroyed: at exit the device may be gone before static destructors run.
  static std::mutex& mutex = *new std::mutex;
  static std::vector<CachedCodes>& cache = *new std::vector<CachedCodes>;
  const std::lock_guard<std::mutex> lock(mutex);
  cache.erase(std::remove_if(cache.begin(), cache.end(), [](const CachedCodes& entry) { return entry.factor.expired(); }),
              cache.end());
  const uint32_t version = VersionOf(factor);
  for (const CachedCodes& entry : cache) {
    if (entry.factor._unsafe_get_target() == factor.unsafeGetTensorImpl() && entry.version == version &&
        entry.transpose == transpose) {
      return entry.codes;
    }
  }
  const at::Tensor codes = Encode(factor, transpose);
  cache.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(factor.getIntrusivePtr()), version, transpose, codes});
  return codes;
}

}  // namespace eagle3_quarot
