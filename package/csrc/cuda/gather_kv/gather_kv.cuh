#pragma once

#include "common/scales.h"
#include "cuda/cache_rows.cuh"
#include "cuda/gather_kv/gather_kv.h"

namespace mla::cuda {
namespace gather_kv {

template <DType kKv, int kDQk, int kDV>
struct Arguments {
  CacheRows<kKv, kDQk, kDV> cache;
  const int32_t* indices;
  TokenRows out;
  int64_t num_rows;
  float kv_scale;
};

// The halves of a pack have factors of their own.
template <DType kKv, DType kOut>
__device__ __forceinline__ RawPack<kOut> dequantised(const RawPack<kKv>& pack, float first,
                                                     float second) {
  float values[kPack];
  to_fp32<kKv>(pack, values);
#pragma unroll
  for (int i = 0; i < kPack; ++i) values[i] = __fmul_rn(values[i], i < kPack / 2 ? first : second);
  return from_fp32<kOut>(values);
}

// A lane's fp32 values of a chunk are two vectors, and those of any other type are one.
template <DType kOut>
inline constexpr Packing kPackingOf = kOut == DType::fp32 ? Packing::halves : Packing::whole;

// The column of a chunk where a half of a lane's pack begins.
template <Packing kPacking>
__device__ __forceinline__ int half_column(int half, int lane) {
  if constexpr (kPacking == Packing::halves) return (half * kRowLanes + lane) * (kPack / 2);
  return lane * kPack + half * (kPack / 2);
}

// The scale of a group, which is a constant where the loops around it are unrolled.
template <DType kKv, int kDQk, int kDV, int kBytes>
__device__ __forceinline__ float scale_of(const Raw<kBytes>& scales, int group) {
  constexpr CacheFormat kFormat = kCacheFormat<kKv, kDQk, kDV>;
  constexpr DType kType = kFormat.scale_type;
  constexpr int kGroups = kFormat.latent / kFormat.scale_group;
  const int i = scale_index(group, kGroups, kFormat.scale_interleave);
  if constexpr (kType == DType::e8m0) {
    return e8m0_to_fp32(part<uint8_t>(scales, i));
  } else if constexpr (kType == DType::e4m3) {
    return e4m3_to_fp32(part<uint8_t>(scales, i));
  } else {
    return part<float>(scales, i);
  }
}

// The scale of a column of a chunk. Several groups in a chunk are told apart without an index that
// only the lane knows, which would put the scales into local memory.
template <DType kKv, int kDQk, int kDV, int kBytes>
__device__ __forceinline__ float scale_at(const Raw<kBytes>& scales, int chunk, int column) {
  constexpr int kGroup = kCacheFormat<kKv, kDQk, kDV>.scale_group;
  constexpr int kChunkGroups = kGroup > kChunk ? 1 : kChunk / kGroup;
  const int first = chunk * kChunk / kGroup;
  float found = scale_of<kKv, kDQk, kDV>(scales, first);
#pragma unroll
  for (int i = 1; i < kChunkGroups; ++i) {
    if (column >= i * kGroup) found = scale_of<kKv, kDQk, kDV>(scales, first + i);
  }
  return found;
}

// @pre The cache holds e4m3 or e2m1 with scales of its groups.
template <DType kKv, DType kOut, int kDQk, int kDV, bool kVectors>
__device__ __forceinline__ RowPacks<kOut, kKv, kDQk, kDV> gathered_groups(
    const typename CacheRows<kKv, kDQk, kDV>::Row& row, int lane) {
  using Out = RowPacks<kOut, kKv, kDQk, kDV>;
  constexpr CacheFormat kFormat = kCacheFormat<kKv, kDQk, kDV>;
  constexpr int kAligned = kAlignment<kKv, kVectors>;
  constexpr Packing kPacking = kPackingOf<kOut>;
  constexpr DType kLatent = kFormat.latent_type;
  constexpr int kBytes = kBytesOf<kLatent, kChunk>;
  RawPack<kLatent> latent[Out::kLatentChunks];
#pragma unroll
  for (int i = 0; i < Out::kLatentChunks; ++i) {
    latent[i] = load_pack<kLatent, kAligned, kPacking>(row.latent + i * kBytes, lane);
  }
  const auto scales = load<Raw<kFormat.scale_bytes>, kAligned>(row.scales);
  Out packs;
  if constexpr (Out::kHasRope) {
    const auto rope = load_pack<kFormat.rope_type, kAligned, kPacking>(row.rope, lane);
    packs.rope = convert<kFormat.rope_type, kOut>(rope);
  }
#pragma unroll
  for (int i = 0; i < Out::kLatentChunks; ++i) {
    const float first = scale_at<kKv, kDQk, kDV>(scales, i, half_column<kPacking>(0, lane));
    const float second = scale_at<kKv, kDQk, kDV>(scales, i, half_column<kPacking>(1, lane));
    packs.latent[i] = dequantised<kLatent, kOut>(latent[i], first, second);
  }
  return packs;
}

template <DType kKv, DType kOut, int kDQk, int kDV, bool kVectors>
__device__ __forceinline__ RowPacks<kOut, kKv, kDQk, kDV> gathered(
    const typename CacheRows<kKv, kDQk, kDV>::Row& row, float kv_scale, int lane) {
  using Stored = RowPacks<kKv, kKv, kDQk, kDV>;
  constexpr int kAligned = kAlignment<kKv, kVectors>;
  constexpr ScalePlace kPlace = kCacheFormat<kKv, kDQk, kDV>.scale_place;
  if constexpr (kPlace == ScalePlace::row || kPlace == ScalePlace::page) {
    return gathered_groups<kKv, kOut, kDQk, kDV, kVectors>(row, lane);
  } else if constexpr (kKv == kOut) {
    return load_row<Stored, kAligned>(row.latent, row.rope, lane);
  } else {
    const auto stored = load_row<Stored, kAligned, kPackingOf<kOut>>(row.latent, row.rope, lane);
    RowPacks<kOut, kKv, kDQk, kDV> packs;
#pragma unroll
    for (int i = 0; i < Stored::kLatentChunks; ++i) {
      packs.latent[i] = dequantised<kKv, kOut>(stored.latent[i], kv_scale, kv_scale);
    }
    if constexpr (Stored::kHasRope) {
      packs.rope = dequantised<kKv, kOut>(stored.rope, kv_scale, kv_scale);
    }
    return packs;
  }
}

// How many blocks a multiprocessor has at least. With 64 registers a thread, which 16 blocks leave,
// kernels with scales of one byte spill on Blackwell, and those of elements of four bits do
// anywhere.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
inline constexpr int kBlocksOfByteScales = 12;
#else
inline constexpr int kBlocksOfByteScales = 16;
#endif
template <DType kKv, int kDQk, int kDV>
inline constexpr int kMinBlocks =
    kCacheFormat<kKv, kDQk, kDV>.latent_type == DType::e2m1  ? 8
    : kCacheFormat<kKv, kDQk, kDV>.scale_type == DType::e8m0 ? kBlocksOfByteScales
                                                             : 16;

template <DType kKv, DType kOut, int kDQk, int kDV, bool kVectors>
__global__ void __launch_bounds__(kRowThreads, kVectors ? kMinBlocks<kKv, kDQk, kDV> : 1)
    gather_kernel(const __grid_constant__ Arguments<kKv, kDQk, kDV> arguments) {
  constexpr int kAligned = kAlignment<kOut, kVectors>;
  constexpr Packing kPacking = kPackingOf<kOut>;
  const int lane = row_lane();
  for (int64_t i = first_row(); i < arguments.num_rows; i += row_step()) {
    const int64_t slot = arguments.indices[i];
    std::byte* const latent = arguments.out.latent(i);
    std::byte* const rope = arguments.out.rope(i);
    if (arguments.cache.has(slot)) {
      const auto from = arguments.cache.at(slot);
      const auto packs = gathered<kKv, kOut, kDQk, kDV, kVectors>(from, arguments.kv_scale, lane);
      store_row<kAligned, kPacking>(packs, latent, rope, lane);
    } else {
      store_row<kAligned, kPacking>(RowPacks<kOut, kKv, kDQk, kDV>{}, latent, rope, lane);
    }
  }
}

}  // namespace gather_kv

template <DType kKv, DType kOut, int kDQk, int kDV>
Status GatherKv<kKv, kOut, kDQk, kDV>::can_run(const Problem& p) {
  MLA_TRY(check_extents(
      {{"num_rows", p.num_rows}, {"num_pages", p.num_pages}, {"page_size", p.page_size}}));
  MLA_TRY(check_kv_scale(kCacheFormat<kKv, kDQk, kDV>, p.kv_scale));
  constexpr bool kHasRope = RowPacks<kOut, kKv, kDQk, kDV>::kHasRope;
  MLA_TRY(check_present({{"indices", p.indices, p.num_rows},
                         {"out", p.out_latent, p.num_rows},
                         {"out", p.out_rope, kHasRope ? p.num_rows : 0}}));
  MLA_TRY(check_aligned({{"indices", p.indices, sizeof(int32_t)},
                         {"out", p.out_latent, kElementBytes<kOut>},
                         {"out", kHasRope ? p.out_rope : nullptr, kElementBytes<kOut>}}));
  return CacheRows<kKv, kDQk, kDV>(p).check();
}

template <DType kKv, DType kOut, int kDQk, int kDV>
Status GatherKv<kKv, kOut, kDQk, kDV>::prepare(int32_t device) {
  using gather_kv::gather_kernel;
  return load_kernels(device,
                      {reinterpret_cast<const void*>(gather_kernel<kKv, kOut, kDQk, kDV, true>),
                       reinterpret_cast<const void*>(gather_kernel<kKv, kOut, kDQk, kDV, false>)});
}

template <DType kKv, DType kOut, int kDQk, int kDV>
Status GatherKv<kKv, kOut, kDQk, kDV>::launch(const Problem& p, ConstBuffer, Buffer,
                                              Stream stream) {
  using gather_kv::gather_kernel;
  MLA_TRY(can_run(p));
  if (p.num_rows == 0) return {};
  const DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  const gather_kv::Arguments<kKv, kDQk, kDV> arguments = {
      CacheRows<kKv, kDQk, kDV>(p), static_cast<const int32_t*>(p.indices),
      token_rows<RowPacks<kOut, kKv, kDQk, kDV>>(p.out_latent, p.out_latent_stride_row, p.out_rope,
                                                 p.out_rope_stride_row),
      p.num_rows, p.kv_scale};
  const bool vectors = arguments.out.has_vectors() && arguments.cache.has_vectors();
  const auto kernel = vectors ? gather_kernel<kKv, kOut, kDQk, kDV, true>
                              : gather_kernel<kKv, kOut, kDQk, kDV, false>;
  kernel<<<blocks_for(p.num_rows, kBlockRows), kRowThreads, 0, cuda_stream(stream)>>>(arguments);
  return check(cudaGetLastError(), "gather_kv");
}

}  // namespace mla::cuda
