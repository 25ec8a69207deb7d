// SPDX-License-Identifier: Apache-2.0
//
// What the operators refuse: the same conditions and words as vllm_eagle3_quarot/ops/checks.py.
#ifndef EAGLE3_QUAROT_CPU_CHECKS_H_
#define EAGLE3_QUAROT_CPU_CHECKS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>

namespace eagle3_quarot {
namespace cpu {


std::string ShapeOf(const at::Tensor& tensor);
std::string DtypeOf(const at::Tensor& tensor);

void CheckRotation(const char* op, const at::Tensor& signs, const at::Tensor& factor, int64_t power);
void CheckChannels(const char* op, const std::string& name, const at::Tensor& x,
                   const at::Tensor& signs);
void CheckList(const char* op, const char* name, at::TensorList parts, const at::Tensor& signs);
void CheckGammas(const char* op, at::TensorList gammas, int64_t width, const at::Tensor& x);
void CheckEmbedding(const char* op, const at::Tensor& ids, const at::Tensor& table,
                    int64_t vocab_start, int64_t vocab_end);
void CheckMultiplier(const char* op, const at::Tensor& multiplier, const at::Tensor& x,
                     int64_t block);

}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_CHECKS_H_
