#pragma once

#include <cfloat>
#include <cmath>

#include "common/scales.h"
#include "cuda/cache_rows.cuh"
#include "cuda/store_kv/quotient.cuh"
#include "cuda/store_kv/store_kv.h"

namespace mla::cuda {
namespace store_kv {

template <DType kKv>
inline constexpr bool kIsScaled = kCacheFormat<kKv>.scale_place == ScalePlace::tensor;

template <DType kKv>
struct Arguments {
  TokenRows tokens;
  CacheRows<kKv> cache;
  const int64_t* slot_mapping;
  const float* scale;
  int64_t num_tokens;
  bool has_power_of_two_scales;
};

template <DType kIn>
__device__ __forceinline__ RawPack<DType::e4m3> quantised(const RawPack<kIn>& pack,
                                                          const ScaleDivisor& scale) {
  float values[kPack];
  to_fp32<kIn>(pack, values);
  scale.divide(values);
  return from_fp32<DType::e4m3>(values);
}

template <DType kIn>
__device__ __forceinline__ RowPacks<DType::e4m3> quantised(const RowPacks<kIn>& row, float scale) {
  const ScaleDivisor divisor(scale > 0 && scale <= FLT_MAX ? scale : NAN);
  RowPacks<DType::e4m3> codes;
#pragma unroll
  for (int i = 0; i < kLatentChunks; ++i) codes.latent[i] = quantised<kIn>(row.latent[i], divisor);
  codes.rope = quantised<kIn>(row.rope, divisor);
  return codes;
}

// Rounds a positive normal number up to a power of two.
__device__ __forceinline__ float power_of_two_from(float value) {
  constexpr uint32_t kMantissa = 0x7fffff;
  return __uint_as_float((__float_as_uint(value) + kMantissa) & ~kMantissa);
}

// Returns the scale of a group, the same to all lanes of the row. It is a normal number, so that
// the quotients keep their precision and a group of zeros divides; NaN does not take part.
template <int kGroupChunks, DType kIn>
__device__ __forceinline__ float group_scale(const RowPacks<kIn>& row, int group,
                                             bool is_power_of_two) {
  float greatest = 0;
#pragma unroll
  for (int i = 0; i < kGroupChunks; ++i) {
    float values[kPack];
    to_fp32<kIn>(row.latent[group * kGroupChunks + i], values);
#pragma unroll
    for (const float value : values) greatest = fmaxf(greatest, fabsf(value));
  }
  const unsigned row_mask = 0xffu << (threadIdx.x % kWarp / kRowLanes * kRowLanes);
#pragma unroll
  for (int distance = kRowLanes / 2; distance > 0; distance /= 2) {
    greatest = fmaxf(greatest, __shfl_xor_sync(row_mask, greatest, distance));
  }
  const float scale = __fdiv_rn(greatest, kMaxE4m3);
  if (!is_power_of_two) return fminf(fmaxf(scale, FLT_MIN), FLT_MAX);
  return power_of_two_from(fminf(fmaxf(scale, kLeastPowerOfTwoScale), kGreatestPowerOfTwoScale));
}

// @pre The format has float32 scales in each row, and a latent of e4m3.
template <DType kIn, DType kKv, bool kVectors>
__device__ __forceinline__ void store_groups(const RowPacks<kIn>& row, bool has_power_of_two_scales,
                                             std::byte* to, int lane) {
  constexpr int kAligned = kAlignment<kKv, kVectors>;
  constexpr int kScaleOffset = kCacheFormat<kKv>.scale_offset;
  constexpr int kRopeOffset = kCacheFormat<kKv>.rope_offset;
  constexpr DType kRopeType = kCacheFormat<kKv>.rope_type;
  constexpr int kGroupChunks = kCacheFormat<kKv>.scale_group / kChunk;
  constexpr int kGroups = kLatentChunks / kGroupChunks;
  static_assert(kGroups * kGroupChunks == kLatentChunks && kGroups <= kRowLanes);
  float own_scale = 0;  // lane i writes the scale of group i
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const float scale = group_scale<kGroupChunks>(row, group, has_power_of_two_scales);
    const ScaleDivisor divisor(scale);
    if (lane == group) own_scale = scale;
#pragma unroll
    for (int i = group * kGroupChunks; i < (group + 1) * kGroupChunks; ++i) {
      store_pack<DType::e4m3, kAligned>(quantised<kIn>(row.latent[i], divisor), to + i * kChunk,
                                        lane);
    }
  }
  if (lane < kGroups) store<kAligned>(to + kScaleOffset + lane * sizeof(float), own_scale);
  const auto rope = convert<kIn, kRopeType>(row.rope);
  store_pack<kRopeType, kAligned>(rope, to + kRopeOffset, lane);
}

template <DType kIn, DType kKv, bool kVectors>
__global__ void __launch_bounds__(kRowThreads, kVectors ? 8 : 1)
    store_kernel(const __grid_constant__ Arguments<kKv> arguments) {
  const TokenRows& tokens = arguments.tokens;
  const int lane = row_lane();
  for (int64_t t = first_row(); t < arguments.num_tokens; t += row_step()) {
    const int64_t slot = arguments.slot_mapping[t];
    const float scale = kIsScaled<kKv> ? *arguments.scale : 1;
    const auto row =
        load_row<kIn, kAlignment<kIn, kVectors>>(tokens.latent(t), tokens.rope(t), lane);
    if (!arguments.cache.has(slot)) continue;
    const auto to = arguments.cache.at(slot);
    if constexpr (kKv == kIn) {
      store_row<kKv, kAlignment<kKv, kVectors>>(row, to.latent, to.rope, lane);
    } else if constexpr (kIsScaled<kKv>) {
      store_row<kKv, kAlignment<kKv, kVectors>>(quantised<kIn>(row, scale), to.latent, to.rope,
                                                lane);
    } else {
      store_groups<kIn, kKv, kVectors>(row, arguments.has_power_of_two_scales, to.latent, lane);
    }
  }
}

}  // namespace store_kv

template <DType kIn, DType kKv>
Status StoreKv<kIn, kKv>::can_run(const Problem& p) {
  MLA_TRY(check_extents(
      {{"num_tokens", p.num_tokens}, {"num_pages", p.num_pages}, {"page_size", p.page_size}}));
  MLA_TRY(check_store_scales(kCacheFormat<kKv>, p));
  MLA_TRY(check_present({{"latent", p.latent, p.num_tokens},
                         {"rope", p.rope, p.num_tokens},
                         {"slot_mapping", p.slot_mapping, p.num_tokens},
                         {"scale", p.scale, store_kv::kIsScaled<kKv> ? 1 : 0}}));
  MLA_TRY(check_aligned({{"latent", p.latent, kElementBytes<kIn>},
                         {"rope", p.rope, kElementBytes<kIn>},
                         {"slot_mapping", p.slot_mapping, sizeof(int64_t)},
                         {"scale", p.scale, sizeof(float)}}));
  return CacheRows<kKv>(p).check();
}

template <DType kIn, DType kKv>
Status StoreKv<kIn, kKv>::prepare(int32_t device) {
  using store_kv::store_kernel;
  return load_kernels(device, {reinterpret_cast<const void*>(store_kernel<kIn, kKv, true>),
                               reinterpret_cast<const void*>(store_kernel<kIn, kKv, false>)});
}

template <DType kIn, DType kKv>
Status StoreKv<kIn, kKv>::launch(const Problem& p, ConstBuffer, Buffer, Stream stream) {
  using store_kv::store_kernel;
  MLA_TRY(can_run(p));
  if (p.num_tokens == 0) return {};
  const DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  const store_kv::Arguments<kKv> arguments = {
      token_rows<kIn>(p.latent, p.latent_stride_t, p.rope, p.rope_stride_t),
      CacheRows<kKv>(p),
      static_cast<const int64_t*>(p.slot_mapping),
      static_cast<const float*>(p.scale),
      p.num_tokens,
      p.power_of_two_scales != 0};
  const bool vectors = arguments.tokens.has_vectors() && arguments.cache.has_vectors();
  const auto kernel = vectors ? store_kernel<kIn, kKv, true> : store_kernel<kIn, kKv, false>;
  kernel<<<blocks_for(p.num_tokens, kBlockRows), kRowThreads, 0, cuda_stream(stream)>>>(arguments);
  return check(cudaGetLastError(), "store_kv");
}

}  // namespace mla::cuda
