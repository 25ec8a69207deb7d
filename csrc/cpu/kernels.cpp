// SPDX-License-Identifier: Apache-2.0
//
// The kernels of one instruction set. Compiled once per set, with its flags and
// -DEAGLE3_QUAROT_ISA=generic | avx2 | avx512.
#include "hadamard.h"
#include "rms_norm.h"
#include "row_transform.h"
#include "small_factor.h"

namespace eagle3_quarot {
namespace cpu {
namespace EAGLE3_QUAROT_ISA {
namespace {

// Calls f with a null pointer of the storage type of `dtype`.
template <class F>
EAGLE3_QUAROT_INLINE void WithType(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::kFloat32: return f(static_cast<float*>(nullptr));
    case Dtype::kBFloat16: return f(static_cast<BFloat16*>(nullptr));
    case Dtype::kFloat16: return f(static_cast<Float16*>(nullptr));
  }
}

// Whether two vectors of 16 bits that make a line are written together: neighbours in a run, or one each
// of two rows of the factor.
EAGLE3_QUAROT_INLINE bool WritesWholeLines(const Transform& transform) {
  const SmallFactor& factor = transform.factor;
  if (!factor.is_signs) return false;
  if (transform.order == 1) return transform.power > kReach;
  if (transform.power == kLanes) return factor.order % 2 == 0;
  return transform.power > kLanes && factor.halves == 1;
}

template <class T>
void WriteBlock(const Transform& transform, float* block, T* target, float* products, float* sums,
                NextBlock& next) {
  const int64_t size = transform.block;
  const int64_t power = transform.power;
  const bool has_factor = transform.order > 1 || !transform.factor.is_signs;
  if (has_factor) {
    if (power > kReach) WritingPass(block, block, size, static_cast<const float*>(nullptr), next);
    ApplyFactor(transform.factor, block, size, power, target, transform.after, products, sums, next);
  } else if (power > kReach) {
    WritingPass(block, target, size, transform.after, next);
  } else {
    WriteRow(block, target, size, transform.after);
  }
}

void TransformRow(const Transform& transform, int64_t first, int64_t channels, Dtype source_dtype,
                  const void* source, const void* next, Dtype target_dtype, void* target,
                  bool streams, float* scratch) {
  const int64_t size = transform.block;
  const int64_t padded = transform.PaddedBlock();
  float* block = scratch;
  float* products = block + padded;
  float* sums = products + padded;
  // Short runs read a vector beyond the block.
  for (int64_t i = size; i < padded; ++i) block[i] = 0;
  for (int64_t start = 0; start < channels; start += size) {
    InputScales scales{nullptr, transform.before};
    if (transform.multiplier != nullptr) {
      scales.multiplier = transform.multiplier + (first + start) % transform.multiplier_size;
    }
    const bool past_caches =
        kCanStream && streams && ElementSize(target_dtype) == 2 && WritesWholeLines(transform) &&
        IsWholeLines(static_cast<const uint16_t*>(target) + start, size);
    const int64_t element = ElementSize(source_dtype);
    NextBlock next_block(next == nullptr ? next : static_cast<const char*>(next) + start * element,
                         size * element, ReadStreams(size, transform.power));
    WithType(source_dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      // Rows are mostly written in the dtype they are read in; else this fetches some lines in vain.
      const T* place = past_caches ? nullptr : static_cast<const T*>(target) + start;
      ReadBlock(static_cast<const T*>(source) + start, block, size, transform.power, scales, place);
    });
    WithType(target_dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      T* written = static_cast<T*>(target) + start;
      if constexpr (kCanStream && sizeof(T) == 2) {
        if (past_caches) {
          WriteBlock(transform, block, reinterpret_cast<Streamed<T>*>(written), products, sums,
                     next_block);
          return;
        }
      }
      WriteBlock(transform, block, written, products, sums, next_block);
    });
  }
}

void RmsNorm(const float* x, int64_t size, Dtype gamma_dtype, const void* gamma, float eps,
             Dtype target_dtype, void* target) {
  WithType(gamma_dtype, [&](auto* gamma_type) {
    using Gamma = std::remove_pointer_t<decltype(gamma_type)>;
    WithType(target_dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      RmsNormRow(x, size, static_cast<const Gamma*>(gamma), eps, static_cast<T*>(target));
    });
  });
}

}  // namespace

#define EAGLE3_QUAROT_NAME_OF(isa) #isa
#define EAGLE3_QUAROT_NAME(isa) EAGLE3_QUAROT_NAME_OF(isa)

extern const Kernels kKernels;
const Kernels kKernels = {EAGLE3_QUAROT_NAME(EAGLE3_QUAROT_ISA), TransformRow, FinishStreaming, RmsNorm};

}  // namespace EAGLE3_QUAROT_ISA
}  // namespace cpu
}  // namespace eagle3_quarot
