// This header has the traits of kernels, and counts the points that kernels support.
//
// Beside each op's class, `supports.h` states the traits that its kernels have. The class asserts
// it of its own traits, and the generated `allowed.h` of every point that the matrix allows or
// leaves out.
#pragma once

#include "mla/traits.h"

namespace mla {

// A floating-point type whose values need no scale.
constexpr bool is_float(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16;
}

constexpr bool has_16_bits(DType dtype) { return dtype == DType::fp16 || dtype == DType::bf16; }

// The format of a second cache beside a first one.
constexpr DType extra_format(ExtraKv extra, DType kv) {
  switch (extra) {
    case ExtraKv::fp4_ds_v41:
      return DType::fp4_ds_v41;
    case ExtraKv::same:
      break;
  }
  return kv;
}

// Whether a model has a second cache of another format beside such a cache, as DeepSeek V4.1 has.
constexpr bool has_extra_format(DType kv, int d_qk) {
  return kv == DType::fp8_ds_v41 && d_qk == 512;
}

template <class Supports>
constexpr int points(Supports supports) {
  return supports() ? 1 : 0;
}

// How many of all combinations of the sets' values `supports` is true of.
template <class Supports, class Set, class... Sets>
constexpr int points(Supports supports, const Set& set, const Sets&... sets) {
  int found = 0;
  for (const auto value : set) {
    found += points([&](auto... rest) { return supports(value, rest...); }, sets...);
  }
  return found;
}

}  // namespace mla
