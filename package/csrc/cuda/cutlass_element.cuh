// The types by which CUTLASS knows the elements of tensors.
#pragma once

#include <cutlass/numeric_types.h>

#include "common/dtype.h"

namespace mla::cuda {

template <DType kDType>
struct ElementOf;
template <>
struct ElementOf<DType::fp16> {
  using Type = cutlass::half_t;
};
template <>
struct ElementOf<DType::bf16> {
  using Type = cutlass::bfloat16_t;
};
template <>
struct ElementOf<DType::e4m3> {
  using Type = cutlass::float_e4m3_t;
};

}  // namespace mla::cuda
