#pragma once

#include "common/scales.h"
#include "cuda/cache_rows.cuh"
#include "cuda/gather_kv/gather_kv.h"

namespace mla::cuda {
namespace gather_kv {

template <DType kKv>
struct Arguments {
  CacheRows<kKv> cache;
  const int32_t* indices;
  TokenRows out;
  int64_t num_rows;
  float kv_scale;
};

template <DType kKv, DType kOut>
__device__ __forceinline__ RawPack<kOut> dequantised(const RawPack<kKv>& pack, float scale) {
  float values[kPack];
  to_fp32<kKv>(pack, values);
#pragma unroll
  for (float& value : values) value = __fmul_rn(value, scale);
  return from_fp32<kOut>(values);
}

// A lane's fp32 values of a chunk are two vectors, and those of any other type are one.
template <DType kOut>
inline constexpr Packing kPackingOf = kOut == DType::fp32 ? Packing::halves : Packing::whole;

// @pre Each row of the cache holds e4m3 with float32 scales, and a rope part of 16 bits.
template <DType kKv, DType kOut, bool kVectors>
__device__ __forceinline__ RowPacks<kOut> gathered_groups(const std::byte* row, int lane) {
  constexpr int kAligned = kAlignment<kKv, kVectors>;
  constexpr Packing kPacking = kPackingOf<kOut>;
  constexpr int kScaleOffset = kCacheFormat<kKv>.scale_offset;
  constexpr int kGroup = kCacheFormat<kKv>.scale_group;
  constexpr int kRopeOffset = kCacheFormat<kKv>.rope_offset;
  constexpr DType kRopeType = kCacheFormat<kKv>.rope_type;
  using Scales = Raw<kCacheFormat<kKv>.scale_bytes>;
  RawPack<DType::e4m3> latent[kLatentChunks];
#pragma unroll
  for (int i = 0; i < kLatentChunks; ++i) {
    latent[i] = load_pack<DType::e4m3, kAligned, kPacking>(row + i * kChunk, lane);
  }
  const auto scales = load<Scales, kAligned>(row + kScaleOffset);
  const auto rope = load_pack<kRopeType, kAligned, kPacking>(row + kRopeOffset, lane);
  RowPacks<kOut> packs;
#pragma unroll
  for (int i = 0; i < kLatentChunks; ++i) {
    const float scale = part<float>(scales, i * kChunk / kGroup);
    packs.latent[i] = dequantised<DType::e4m3, kOut>(latent[i], scale);
  }
  packs.rope = convert<kRopeType, kOut>(rope);
  return packs;
}

template <DType kKv, DType kOut, bool kVectors>
__device__ __forceinline__ RowPacks<kOut> gathered(const typename CacheRows<kKv>::Row& row,
                                                   float kv_scale, int lane) {
  constexpr int kAligned = kAlignment<kKv, kVectors>;
  if constexpr (kCacheFormat<kKv>.scale_place == ScalePlace::row) {
    return gathered_groups<kKv, kOut, kVectors>(row.latent, lane);
  } else if constexpr (kKv == kOut) {
    return load_row<kKv, kAligned>(row.latent, row.rope, lane);
  } else {
    const auto stored = load_row<kKv, kAligned, kPackingOf<kOut>>(row.latent, row.rope, lane);
    RowPacks<kOut> packs;
#pragma unroll
    for (int i = 0; i < kLatentChunks; ++i) {
      packs.latent[i] = dequantised<kKv, kOut>(stored.latent[i], kv_scale);
    }
    packs.rope = dequantised<kKv, kOut>(stored.rope, kv_scale);
    return packs;
  }
}

template <DType kKv, DType kOut, bool kVectors>
__global__ void __launch_bounds__(kRowThreads, kVectors ? 16 : 1)
    gather_kernel(const __grid_constant__ Arguments<kKv> arguments) {
  constexpr int kAligned = kAlignment<kOut, kVectors>;
  const int lane = row_lane();
  for (int64_t i = first_row(); i < arguments.num_rows; i += row_step()) {
    const int64_t slot = arguments.indices[i];
    std::byte* const latent = arguments.out.latent(i);
    std::byte* const rope = arguments.out.rope(i);
    if (arguments.cache.has(slot)) {
      const auto from = arguments.cache.at(slot);
      const auto packs = gathered<kKv, kOut, kVectors>(from, arguments.kv_scale, lane);
      store_row<kOut, kAligned, kPackingOf<kOut>>(packs, latent, rope, lane);
    } else {
      store_row<kOut, kAligned, kPackingOf<kOut>>(RowPacks<kOut>{}, latent, rope, lane);
    }
  }
}

}  // namespace gather_kv

template <DType kKv, DType kOut>
Status GatherKv<kKv, kOut>::can_run(const Problem& p) {
  MLA_TRY(check_extents(
      {{"num_rows", p.num_rows}, {"num_pages", p.num_pages}, {"page_size", p.page_size}}));
  MLA_TRY(check_kv_scale(kCacheFormat<kKv>, p.kv_scale));
  MLA_TRY(check_present({{"indices", p.indices, p.num_rows},
                         {"out", p.out_latent, p.num_rows},
                         {"out", p.out_rope, p.num_rows}}));
  MLA_TRY(check_aligned({{"indices", p.indices, sizeof(int32_t)},
                         {"out", p.out_latent, kElementBytes<kOut>},
                         {"out", p.out_rope, kElementBytes<kOut>}}));
  return CacheRows<kKv>(p).check();
}

template <DType kKv, DType kOut>
Status GatherKv<kKv, kOut>::prepare(int32_t device) {
  using gather_kv::gather_kernel;
  return load_kernels(device, {reinterpret_cast<const void*>(gather_kernel<kKv, kOut, true>),
                               reinterpret_cast<const void*>(gather_kernel<kKv, kOut, false>)});
}

template <DType kKv, DType kOut>
Status GatherKv<kKv, kOut>::launch(const Problem& p, ConstBuffer, Buffer, Stream stream) {
  using gather_kv::gather_kernel;
  MLA_TRY(can_run(p));
  if (p.num_rows == 0) return {};
  const DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  const gather_kv::Arguments<kKv> arguments = {
      CacheRows<kKv>(p), static_cast<const int32_t*>(p.indices),
      token_rows<kOut>(p.out_latent, p.out_latent_stride_row, p.out_rope, p.out_rope_stride_row),
      p.num_rows, p.kv_scale};
  const bool vectors = arguments.out.has_vectors() && arguments.cache.has_vectors();
  const auto kernel = vectors ? gather_kernel<kKv, kOut, true> : gather_kernel<kKv, kOut, false>;
  kernel<<<blocks_for(p.num_rows, kBlockRows), kRowThreads, 0, cuda_stream(stream)>>>(arguments);
  return check(cudaGetLastError(), "gather_kv");
}

}  // namespace mla::cuda
