// SPDX-License-Identifier: Apache-2.0
//
// The CPU kernel's interface: the channels of one row times Q or Q^T. Nothing here knows torch.
//
// Row vectors, h' = h Q, with Q = I (x) [diag(s) (F (x) Hd_m)] in blocks of b = k * m channels; s holds
// the signs times the normalisation. For one block x, seen as [k, m]:
//
//     x Q^T:  t = x Hd_m;         y[i, :] = sum_j F(i, j) t[j, :];  y *= s     (un-rotation)
//     x Q:    t = (x * s) Hd_m;   y[i, :] = sum_j F(j, i) t[j, :]              (rotation)
//
// A Transform is made once per call (MakeTransform) and read by any number of threads; each thread
// brings its own scratch memory.
#ifndef EAGLE3_QUAROT_CPU_ROW_TRANSFORM_H_
#define EAGLE3_QUAROT_CPU_ROW_TRANSFORM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace eagle3_quarot {
namespace cpu {

enum class Dtype { kFloat32, kBFloat16, kFloat16 };

enum class Direction { kUnrotate, kRotate };

inline size_t ElementSize(Dtype dtype) { return dtype == Dtype::kFloat32 ? 4 : 2; }

// Widest vector of any back end, in floats: what scratch memory is padded and aligned to.
constexpr int64_t kMaxLanes = 16;

// The k x k factor, in the orientation that y[i] = sum_j F(i, j) t[j] needs.
//
// A factor of +-1 is kept as codes: columns are taken in groups of four, and of the 16 combinations
// +-t0 +-t1 +-t2 +-t3 of a group the eight with +t0 are enough. Row i adds or, with kSubtract in
// codes[g * order + i], subtracts combination (code % kSubtract) / kCodeStep of group g, in which bit q
// is set when t(q + 1) is subtracted. A factor H_2 (x) F' (the order-160 table is one) is split:
// `halves` is 2, `order` that of F'.
struct SmallFactor {
  // Combinations are vectors of kMaxLanes floats or fewer: a code is the place of its first float in
  // the largest case, so that no kernel has to shift it.
  static constexpr int kCodeStep = 16;
  static constexpr int kSubtract = 8 * kCodeStep;

  int64_t order = 1;
  int64_t halves = 1;
  bool is_signs = false;
  std::vector<uint8_t> codes;
  // Used unless is_signs: F(i, j) = values[i * row_stride + j * column_stride].
  const float* values = nullptr;
  int64_t row_stride = 1;
  int64_t column_stride = 1;

  int64_t Groups() const { return (order + 3) / 4; }
};

struct Transform {
  int64_t block = 0;              // b = k * m
  int64_t order = 0;              // k
  int64_t power = 0;              // m, a power of two
  const float* before = nullptr;  // [block], applied to the input (rotation); may be null
  const float* after = nullptr;   // [block], applied to the output (un-rotation); may be null
  const float* multiplier = nullptr;  // [multiplier_size], applied to the input first; may be null
  int64_t multiplier_size = 0;
  SmallFactor factor;

  // A block and room for a vector that starts at its last element, in whole vectors.
  int64_t PaddedBlock() const { return (block + 2 * kMaxLanes - 1) / kMaxLanes * kMaxLanes; }
};

// `signs` [k * m] and `factor` [k, k] must outlive the result.
Transform MakeTransform(int64_t order, int64_t power, const float* signs, const float* factor,
                        Direction direction);

// Floats of scratch memory that one thread needs, aligned to 4 * kMaxLanes bytes.
int64_t ScratchFloats(const Transform& transform);

// The entry points of one instruction set.
struct Kernels {
  const char* name;

  // Transforms `channels` channels (whole blocks) of `source` into `target`, which may be the same
  // memory. `first` is the position of the first one in its row, for the multiplier. `next` is the
  // source of the caller's next call, to be fetched meanwhile, or null. `streams`: the target is not
  // the source and will not be read before it has left the caches; see finish_streaming.
  void (*transform_row)(const Transform& transform, int64_t first, int64_t channels,
                        Dtype source_dtype, const void* source, const void* next,
                        Dtype target_dtype, void* target, bool streams, float* scratch);

  // To be called by a thread after its rows, before another one reads them.
  void (*finish_streaming)();

  // target = RMSNorm(x) for fp32 x [size], rounded where vLLM's RMSNorm rounds:
  // to gamma's dtype before and after the product with gamma, then to the target's.
  void (*rms_norm)(const float* x, int64_t size, Dtype gamma_dtype, const void* gamma, float eps,
                   Dtype target_dtype, void* target);
};

// The fastest kernels that this processor runs. A `limit` other than null or "auto" names one
// set for comparison; a set that the processor lacks gives "generic".
const Kernels& SelectKernels(const char* limit);

}  // namespace cpu
}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_CPU_ROW_TRANSFORM_H_
