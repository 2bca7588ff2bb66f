// The formats of KV caches. Generated; see codegen/matrix/formats.toml.
#pragma once

#include "common/cache_format.h"

namespace mla {

// The widths of a variant whose name does not say otherwise.
inline constexpr int kLatent = 512;
inline constexpr int kRope = 64;
inline constexpr int kHeadDim = kLatent + kRope;

inline constexpr CacheFormat kCacheFormats[] = {
    {
        /*name=*/"fp32",
        /*dtype=*/DType::fp32,
        /*d_qk=*/576,
        /*d_v=*/512,
        /*latent=*/512,
        /*latent_type=*/DType::fp32,
        /*rope=*/64,
        /*rope_type=*/DType::fp32,
        /*scale_place=*/ScalePlace::none,
        /*scale_type=*/DType::fp32,
        /*scale_group=*/0,
        /*scale_bytes=*/0,
        /*scale_offset=*/0,
        /*rope_offset=*/2048,
        /*row_bytes=*/2304,
        /*token_bytes=*/2304,
        /*page_multiple=*/1,
        /*is_bytes=*/false,
    },
    {
        /*name=*/"fp16",
        /*dtype=*/DType::fp16,
        /*d_qk=*/576,
        /*d_v=*/512,
        /*latent=*/512,
        /*latent_type=*/DType::fp16,
        /*rope=*/64,
        /*rope_type=*/DType::fp16,
        /*scale_place=*/ScalePlace::none,
        /*scale_type=*/DType::fp32,
        /*scale_group=*/0,
        /*scale_bytes=*/0,
        /*scale_offset=*/0,
        /*rope_offset=*/1024,
        /*row_bytes=*/1152,
        /*token_bytes=*/1152,
        /*page_multiple=*/1,
        /*is_bytes=*/false,
    },
    {
        /*name=*/"bf16",
        /*dtype=*/DType::bf16,
        /*d_qk=*/576,
        /*d_v=*/512,
        /*latent=*/512,
        /*latent_type=*/DType::bf16,
        /*rope=*/64,
        /*rope_type=*/DType::bf16,
        /*scale_place=*/ScalePlace::none,
        /*scale_type=*/DType::fp32,
        /*scale_group=*/0,
        /*scale_bytes=*/0,
        /*scale_offset=*/0,
        /*rope_offset=*/1024,
        /*row_bytes=*/1152,
        /*token_bytes=*/1152,
        /*page_multiple=*/1,
        /*is_bytes=*/false,
    },
    {
        /*name=*/"e4m3",
        /*dtype=*/DType::e4m3,
        /*d_qk=*/576,
        /*d_v=*/512,
        /*latent=*/512,
        /*latent_type=*/DType::e4m3,
        /*rope=*/64,
        /*rope_type=*/DType::e4m3,
        /*scale_place=*/ScalePlace::tensor,
        /*scale_type=*/DType::fp32,
        /*scale_group=*/0,
        /*scale_bytes=*/0,
        /*scale_offset=*/0,
        /*rope_offset=*/512,
        /*row_bytes=*/576,
        /*token_bytes=*/576,
        /*page_multiple=*/1,
        /*is_bytes=*/false,
    },
    {
        /*name=*/"fp8_ds_mla",
        /*dtype=*/DType::fp8_ds_mla,
        /*d_qk=*/576,
        /*d_v=*/512,
        /*latent=*/512,
        /*latent_type=*/DType::e4m3,
        /*rope=*/64,
        /*rope_type=*/DType::bf16,
        /*scale_place=*/ScalePlace::row,
        /*scale_type=*/DType::fp32,
        /*scale_group=*/128,
        /*scale_bytes=*/16,
        /*scale_offset=*/512,
        /*rope_offset=*/528,
        /*row_bytes=*/656,
        /*token_bytes=*/656,
        /*page_multiple=*/1,
        /*is_bytes=*/true,
    },
};

// The index of a format in kCacheFormats, or -1.
constexpr int format_index(DType dtype, int d_qk, int d_v) {
  int index = 0;
  for (const CacheFormat& format : kCacheFormats) {
    if (format.dtype == dtype && format.d_qk == d_qk && format.d_v == d_v) return index;
    ++index;
  }
  return -1;
}

constexpr bool is_cache_format(DType dtype, int d_qk = kHeadDim, int d_v = kLatent) {
  return format_index(dtype, d_qk, d_v) >= 0;
}

// @pre There is such a format; a constant of another one does not compile.
constexpr const CacheFormat& cache_format(DType dtype, int d_qk = kHeadDim, int d_v = kLatent) {
  return kCacheFormats[format_index(dtype, d_qk, d_v)];
}

template <DType kKv, int kDQk = kHeadDim, int kDV = kLatent>
inline constexpr CacheFormat kCacheFormat = cache_format(kKv, kDQk, kDV);

}  // namespace mla
