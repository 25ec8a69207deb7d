// SPDX-License-Identifier: Apache-2.0
#include "matmul_path.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

namespace eagle3_quarot {

namespace {

// A Hadamard product runs as matmuls of at most this order, which fills the cube's tiles.
constexpr int64_t kLargestRadix = 128;

at::Tensor HadamardMatrix(int64_t order, const at::Tensor& like) {
  using Key = std::tuple<int64_t, at::ScalarType, std::string>;
  // Never destroyed, see FactorCodes. A handful of small matrices per device.
  static std::mutex& mutex = *new std::mutex;
  static std::map<Key, at::Tensor>& cache = *new std::map<Key, at::Tensor>;
  const std::lock_guard<std::mutex> lock(mutex);
  at::Tensor& matrix = cache[{order, like.scalar_type(), like.device().str()}];
  if (!matrix.defined()) {
    at::Tensor host = at::ones({1, 1}, at::kFloat);
    while (host.size(0) < order) {
      host = at::cat({at::cat({host, host}, 1), at::cat({host, host.neg()}, 1)}, 0);
    }
    matrix = host.to(like.device(), like.scalar_type());
  }
  return matrix;
}

// Hd_m along the last axis of [n, m]: index bits in groups, each group one matmul.
at::Tensor HadamardLastAxis(at::Tensor x, int64_t m) {
  for (int64_t right = 1; right < m;) {
    const int64_t radix = std::min(kLargestRadix, m / right);
    const at::Tensor matrix = HadamardMatrix(radix, x);
    if (right == 1) {
      x = at::matmul(x.reshape({-1, radix}), matrix);
    } else {
      x = at::matmul(matrix, x.reshape({-1, radix, right}));
    }
    right *= radix;
  }
  return x.reshape({-1, m});
}

}  // namespace

at::Tensor MatmulProduct(const at::Tensor& x, const RotationTensors& rotation, Direction direction) {
  const int64_t k = rotation.factor.size(0);
  const int64_t m = rotation.power;
  const bool rotate = direction == Direction::kRotate;
  at::Tensor y = x.reshape({-1, k * m});
  if (rotate) y = y.to(at::kFloat).mul(rotation.signs).to(x.scalar_type());
  if (m > 1) y = HadamardLastAxis(y, m);
  const at::Tensor f = rotation.factor.to(x.scalar_type());
  if (m == 1) {
    y = at::matmul(y, rotate ? f : f.t());
  } else if (k > 1) {
    y = at::matmul(rotate ? f.t() : f, y.reshape({-1, k, m}));
  }
  y = y.reshape({-1, k * m}).to(at::kFloat);
  if (!rotate) y = y.mul(rotation.signs);
  return y.reshape(x.sizes());
}

}  // namespace eagle3_quarot
