#pragma once

#include "common/dtype.h"
#include "cpu/isa/attend.h"
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

// The scale of a group of columns.
MLA_ALWAYS_INLINE float group_scale(DType type, const std::byte* scales, int group) {
  switch (type) {
    case DType::e8m0:
      return e8m0_to_fp32(load_as<uint8_t>(scales, group));
    case DType::e4m3:
      return e4m3_to_fp32(load_as<uint8_t>(scales, group));
    default:
      return load_as<float>(scales, group);
  }
}

// Dequantises the latent of a row that has scales, whose elements are e4m3 or e2m1.
inline void scaled_to_fp32(const CacheFormat& format, const StoredRow& stored,
                           float* __restrict row) {
  const int columns = format.scale_group;
  const bool is_e4m3 = format.latent_type == DType::e4m3;
  for (int first = 0; first < format.latent; first += columns) {
    const int group = format.scale_index(first / columns);
    const float scale = group_scale(format.scale_type, stored.scales, group);
    if (is_e4m3) {
      for (int i = 0; i < columns; ++i) {
        row[first + i] = scale * e4m3_to_fp32(load_as<uint8_t>(stored.latent + first, i));
      }
    } else {
      for (int i = 0; i < columns; ++i) {
        const uint8_t pair = load_as<uint8_t>(stored.latent, (first + i) / 2);
        row[first + i] = scale * e2m1_to_fp32(i % 2 == 0 ? pair & 0xf : pair >> 4);
      }
    }
  }
}

// Dequantises a row of a cache, without the scale of the cache, to [d_qk].
inline void row_to_fp32(const CacheFormat& format, const StoredRow& stored, float* row) {
  if (format.is_bytes) {
    scaled_to_fp32(format, stored, row);
  } else {
    to_fp32_inline(format.latent_type, stored.latent, row, format.latent);
  }
  to_fp32_inline(format.rope_type, stored.rope, row + format.latent, format.rope);
}

inline void gather_row(const CacheFormat& format, const StoredRow& stored, float kv_scale,
                       float* row) {
  row_to_fp32(format, stored, row);
  for (int i = 0; i < format.d_qk; ++i) row[i] *= kv_scale;
}

}  // namespace
}  // namespace mla::cpu
