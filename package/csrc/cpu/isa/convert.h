#pragma once

#include "cpu/isa/simd.h"

namespace mla::cpu {
namespace {

template <class T>
MLA_ALWAYS_INLINE T load_as(const void* from, int64_t i) {
  T value;
  __builtin_memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof value);
  return value;
}

template <class T>
MLA_ALWAYS_INLINE void store_as(void* to, int64_t i, T value) {
  __builtin_memcpy(static_cast<std::byte*>(to) + i * sizeof(T), &value, sizeof value);
}

MLA_ALWAYS_INLINE void to_fp32_inline(DType from, const void* src, float* __restrict dst,
                                      int64_t n) {
  switch (from) {
    case DType::fp32:
      __builtin_memcpy(dst, src, n * sizeof(float));
      break;
    case DType::fp16:
      for (int64_t i = 0; i < n; ++i) dst[i] = fp16_to_fp32(load_as<uint16_t>(src, i));
      break;
    case DType::bf16:
      for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_fp32(load_as<uint16_t>(src, i));
      break;
    case DType::e4m3:
      for (int64_t i = 0; i < n; ++i) dst[i] = e4m3_to_fp32(load_as<uint8_t>(src, i));
      break;
    default:  // a cache of bytes, of which no element stands alone
      break;
  }
}

inline void to_fp32(DType from, const void* src, float* dst, int64_t n) {
  to_fp32_inline(from, src, dst, n);
}

inline void from_fp32(DType to, const float* __restrict src, void* __restrict dst, int64_t n) {
  switch (to) {
    case DType::fp32:
      __builtin_memcpy(dst, src, n * sizeof(float));
      break;
    case DType::fp16:
      for (int64_t i = 0; i < n; ++i) store_as(dst, i, fp32_to_fp16(src[i]));
      break;
    case DType::bf16:
      for (int64_t i = 0; i < n; ++i) store_as(dst, i, fp32_to_bf16(src[i]));
      break;
    case DType::e4m3:
      for (int64_t i = 0; i < n; ++i) store_as(dst, i, fp32_to_e4m3(src[i]));
      break;
    default:  // a cache of bytes, of which no element stands alone
      break;
  }
}

inline void accumulate(float* __restrict o, const float* __restrict part, float weight, int64_t n) {
  for (int64_t i = 0; i < n; ++i) o[i] += weight * part[i];
}

// Dequantises a cache row as stored, without the scale of the cache, to [kHeadDim].
//
// @pre converts_rows() is true of the format: a latent in a row of bytes is e4m3.
inline void row_to_fp32(const CacheFormat& format, const void* latent, const void* rope,
                        float* __restrict row) {
  if (format.is_bytes) {
    const std::byte* const bytes = static_cast<const std::byte*>(latent);
    const int columns = format.scale_group;
    for (int group = 0; group < kLatent / columns; ++group) {
      const float scale = load_as<float>(bytes + format.scale_offset, group);
      const int first = group * columns;
      for (int i = 0; i < columns; ++i) {
        row[first + i] = scale * e4m3_to_fp32(load_as<uint8_t>(bytes + first, i));
      }
    }
  } else {
    to_fp32_inline(format.latent_type, latent, row, kLatent);
  }
  to_fp32_inline(format.rope_type, rope, row + kLatent, kRope);
}

inline void gather_row(const CacheFormat& format, const void* latent, const void* rope,
                       float kv_scale, float* row) {
  row_to_fp32(format, latent, rope, row);
  for (int i = 0; i < kHeadDim; ++i) row[i] *= kv_scale;
}

}  // namespace
}  // namespace mla::cpu
