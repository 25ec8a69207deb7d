// SPDX-License-Identifier: Apache-2.0
//
// Between the rows' type and fp32. fp32 rows are copied by a multiplication with 1: the vector unit
// has no fp32 to fp32 cast.
#ifndef EAGLE3_QUAROT_ASCEND_ROW_CASTS_H_
#define EAGLE3_QUAROT_ASCEND_ROW_CASTS_H_

#include "kernel_operator.h"

namespace eagle3_quarot {

template <typename U>
__aicore__ inline void Widen(const AscendC::LocalTensor<float>& dst, const AscendC::LocalTensor<U>& src,
                             uint32_t count) {
  AscendC::Cast(dst, src, AscendC::RoundMode::CAST_NONE, count);
}
__aicore__ inline void Widen(const AscendC::LocalTensor<float>& dst, const AscendC::LocalTensor<float>& src,
                             uint32_t count) {
  AscendC::Muls(dst, src, 1.0f, static_cast<int32_t>(count));
}
template <typename U>
__aicore__ inline void Narrow(const AscendC::LocalTensor<U>& dst, const AscendC::LocalTensor<float>& src,
                              uint32_t count) {
  AscendC::Cast(dst, src, AscendC::RoundMode::CAST_RINT, count);
}
__aicore__ inline void Narrow(const AscendC::LocalTensor<float>& dst, const AscendC::LocalTensor<float>& src,
                              uint32_t count) {
  AscendC::Muls(dst, src, 1.0f, static_cast<int32_t>(count));
}

}  // namespace eagle3_quarot

#endif  // EAGLE3_QUAROT_ASCEND_ROW_CASTS_H_
