#pragma once

#include <cfloat>
#include <cmath>

#include "common/scales.h"
#include "cuda/cache_rows.cuh"
#include "cuda/store_kv/quotient.cuh"
#include "cuda/store_kv/store_kv.h"

namespace mla::cuda {
namespace store_kv {

template <DType kKv, int kDQk, int kDV>
inline constexpr bool kIsScaled = kCacheFormat<kKv, kDQk, kDV>.scale_place == ScalePlace::tensor;

template <DType kKv, int kDQk, int kDV>
struct Arguments {
  TokenRows tokens;
  CacheRows<kKv, kDQk, kDV> cache;
  const int64_t* slot_mapping;
  const float* scale;
  int64_t num_tokens;
  bool has_power_of_two_scales;
};

template <DType kIn, DType kTo = DType::e4m3>
__device__ __forceinline__ RawPack<kTo> quantised(const RawPack<kIn>& pack,
                                                  const ScaleDivisor& scale) {
  float values[kPack];
  to_fp32<kIn>(pack, values);
  scale.divide(values);
  return from_fp32<kTo>(values);
}

template <DType kIn, int kChunks, bool kHasRope>
__device__ __forceinline__ auto quantised(const Packs<kIn, kChunks, kHasRope>& row, float scale) {
  const ScaleDivisor divisor(scale > 0 && scale <= FLT_MAX ? scale : NAN);
  Packs<DType::e4m3, kChunks, kHasRope> codes;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) codes.latent[i] = quantised<kIn>(row.latent[i], divisor);
  if constexpr (kHasRope) codes.rope = quantised<kIn>(row.rope, divisor);
  return codes;
}

// Rounds a positive normal number up to a power of two.
__device__ __forceinline__ float power_of_two_from(float value) {
  constexpr uint32_t kMantissa = 0x7fffff;
  return __uint_as_float((__float_as_uint(value) + kMantissa) & ~kMantissa);
}

// The lanes that move the same row as this one.
__device__ __forceinline__ unsigned row_mask() {
  return 0xffu << (threadIdx.x % kWarp / kRowLanes * kRowLanes);
}

// The greater of two numbers; NaN if one is NaN.
__device__ __forceinline__ float greater_or_nan(float left, float right) {
  float greater;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(left), "f"(right));
  return greater;
}

// Returns the greatest magnitude of a group of columns, the same to all lanes that have some of
// them: kLanes of them in chunks from `first`. NaN does not take part, or decides.
template <int kGroupChunks, int kLanes, bool kNanDecides, class Packs>
__device__ __forceinline__ float greatest_magnitude(const Packs& row, int first) {
  const auto greater = [](float left, float right) {
    return kNanDecides ? greater_or_nan(left, right) : fmaxf(left, right);
  };
  float greatest = 0;
#pragma unroll
  for (int i = 0; i < kGroupChunks; ++i) {
    float values[kPack];
    to_fp32<Packs::kElement>(row.latent[first + i], values);
#pragma unroll
    for (const float value : values) greatest = greater(greatest, fabsf(value));
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    greatest = greater(greatest, __shfl_xor_sync(row_mask(), greatest, distance));
  }
  return greatest;
}

// Rounds a scale to its type. One of fp32 is a normal number, so that the quotients keep their
// precision and a group of zeros divides. NaN stays NaN, where the group is lost.
template <DType kType>
__device__ __forceinline__ float rounded_scale(float scale, bool is_power_of_two) {
  if constexpr (kType == DType::e4m3) {
    const float clamped = fminf(fmaxf(scale, kLeastE4m3), kMaxE4m3);
    return isnan(scale) ? scale : e4m3_to_fp32(fp32_to_e4m3(clamped));
  } else {
    if (!is_power_of_two) return fminf(fmaxf(scale, FLT_MIN), FLT_MAX);
    return power_of_two_from(fminf(fmaxf(scale, kLeastPowerOfTwoScale), kGreatestPowerOfTwoScale));
  }
}

// @pre The scale is one of its type.
template <DType kType, int kBytes>
__device__ __forceinline__ void set_scale(Raw<kBytes>& scales, int i, float scale) {
  if constexpr (kType == DType::e8m0) {
    set_part(scales, i, fp32_to_e8m0(scale));
  } else if constexpr (kType == DType::e4m3) {
    set_part(scales, i, fp32_to_e4m3(scale));
  } else {
    set_part(scales, i, scale);
  }
}

// Quantises a row whose groups of columns have scales. A group is some chunks, or a part of one.
//
// @pre The latent of the format is e4m3 or e2m1.
template <DType kKv, int kDQk, int kDV, bool kVectors, class Packs>
__device__ __forceinline__ void store_groups(const Packs& row, bool has_power_of_two_scales,
                                             const typename CacheRows<kKv, kDQk, kDV>::Row& to,
                                             int lane) {
  constexpr CacheFormat kFormat = kCacheFormat<kKv, kDQk, kDV>;
  constexpr DType kIn = Packs::kElement;
  constexpr DType kLatent = kFormat.latent_type;
  constexpr DType kScale = kFormat.scale_type;
  constexpr bool kHasNan = kLatent == DType::e4m3;  // without, the scale of a group is NaN
  constexpr float kMax = kHasNan ? kMaxE4m3 : kMaxE2m1;
  constexpr int kBytes = kBytesOf<kLatent, kChunk>;
  constexpr int kAligned = kAlignment<kKv, kVectors>;
  constexpr int kGroup = kFormat.scale_group;
  constexpr int kGroupChunks = kGroup > kChunk ? kGroup / kChunk : 1;
  constexpr int kChunkGroups = kGroup > kChunk ? 1 : kChunk / kGroup;
  constexpr int kGroupLanes = kRowLanes / kChunkGroups;
  constexpr int kSteps = Packs::kLatentChunks / kGroupChunks;
  static_assert(kSteps * kGroupChunks == Packs::kLatentChunks && kSteps <= kRowLanes);
  Raw<kChunkGroups * kElementBytes<kScale>> own_scales{};  // lane i has those of step i
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int first = step * kGroupChunks;
    const float greatest = greatest_magnitude<kGroupChunks, kGroupLanes, !kHasNan>(row, first);
    const float scale = rounded_scale<kScale>(__fdiv_rn(greatest, kMax),
                                              kScale == DType::e8m0 || has_power_of_two_scales);
    const ScaleDivisor divisor(scale);
#pragma unroll
    for (int i = 0; i < kChunkGroups; ++i) {
      const float one =
          kChunkGroups == 1 ? scale : __shfl_sync(row_mask(), scale, i * kGroupLanes, kRowLanes);
      if (lane == step) set_scale<kScale>(own_scales, i, one);
    }
#pragma unroll
    for (int i = first; i < first + kGroupChunks; ++i) {
      store_pack<kLatent, kAligned>(quantised<kIn, kLatent>(row.latent[i], divisor),
                                    to.latent + i * kBytes, lane);
    }
  }
  // The scales of lanes beyond the steps are padding, and 0.
  constexpr int kScaleBytes = sizeof(own_scales);
  if (lane * kScaleBytes < kFormat.scale_bytes) {
    if constexpr (kFormat.scale_interleave == 1) {
      store<kAligned>(to.scales + lane * kScaleBytes, own_scales);
    } else {
      static_assert(kFormat.scale_interleave == kChunkGroups && kElementBytes<kScale> == 1);
#pragma unroll
      for (int i = 0; i < kChunkGroups; ++i) {
        to.scales[i * kSteps + lane] = std::byte{part<uint8_t>(own_scales, i)};
      }
    }
  }
  if constexpr (Packs::kHasRope) {
    const auto rope = convert<kIn, kFormat.rope_type>(row.rope);
    store_pack<kFormat.rope_type, kAligned>(rope, to.rope, lane);
  }
}

template <DType kIn, DType kKv, int kDQk, int kDV, bool kVectors>
__global__ void __launch_bounds__(kRowThreads, kVectors ? 8 : 1)
    store_kernel(const __grid_constant__ Arguments<kKv, kDQk, kDV> arguments) {
  using Row = RowPacks<kIn, kKv, kDQk, kDV>;
  constexpr int kAligned = kAlignment<kKv, kVectors>;
  const TokenRows& tokens = arguments.tokens;
  const int lane = row_lane();
  for (int64_t t = first_row(); t < arguments.num_tokens; t += row_step()) {
    const int64_t slot = arguments.slot_mapping[t];
    const float scale = kIsScaled<kKv, kDQk, kDV> ? *arguments.scale : 1;
    const auto row =
        load_row<Row, kAlignment<kIn, kVectors>>(tokens.latent(t), tokens.rope(t), lane);
    if (!arguments.cache.has(slot)) continue;
    const auto to = arguments.cache.at(slot);
    if constexpr (kKv == kIn) {
      store_row<kAligned>(row, to.latent, to.rope, lane);
    } else if constexpr (kIsScaled<kKv, kDQk, kDV>) {
      store_row<kAligned>(quantised(row, scale), to.latent, to.rope, lane);
    } else {
      store_groups<kKv, kDQk, kDV, kVectors>(row, arguments.has_power_of_two_scales, to, lane);
    }
  }
}

}  // namespace store_kv

template <DType kIn, DType kKv, int kDQk, int kDV>
Status StoreKv<kIn, kKv, kDQk, kDV>::can_run(const Problem& p) {
  MLA_TRY(check_extents(
      {{"num_tokens", p.num_tokens}, {"num_pages", p.num_pages}, {"page_size", p.page_size}}));
  MLA_TRY(check_store_scales(kCacheFormat<kKv, kDQk, kDV>, p));
  constexpr bool kHasRope = RowPacks<kIn, kKv, kDQk, kDV>::kHasRope;
  MLA_TRY(check_present({{"latent", p.latent, p.num_tokens},
                         {"rope", p.rope, kHasRope ? p.num_tokens : 0},
                         {"slot_mapping", p.slot_mapping, p.num_tokens},
                         {"scale", p.scale, store_kv::kIsScaled<kKv, kDQk, kDV> ? 1 : 0}}));
  MLA_TRY(check_aligned({{"latent", p.latent, kElementBytes<kIn>},
                         {"rope", kHasRope ? p.rope : nullptr, kElementBytes<kIn>},
                         {"slot_mapping", p.slot_mapping, sizeof(int64_t)},
                         {"scale", p.scale, sizeof(float)}}));
  return CacheRows<kKv, kDQk, kDV>(p).check();
}

template <DType kIn, DType kKv, int kDQk, int kDV>
Status StoreKv<kIn, kKv, kDQk, kDV>::prepare(int32_t device) {
  using store_kv::store_kernel;
  return load_kernels(device,
                      {reinterpret_cast<const void*>(store_kernel<kIn, kKv, kDQk, kDV, true>),
                       reinterpret_cast<const void*>(store_kernel<kIn, kKv, kDQk, kDV, false>)});
}

template <DType kIn, DType kKv, int kDQk, int kDV>
Status StoreKv<kIn, kKv, kDQk, kDV>::launch(const Problem& p, ConstBuffer, Buffer, Stream stream) {
  using store_kv::store_kernel;
  MLA_TRY(can_run(p));
  if (p.num_tokens == 0) return {};
  const DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  using Row = RowPacks<kIn, kKv, kDQk, kDV>;
  const store_kv::Arguments<kKv, kDQk, kDV> arguments = {
      token_rows<Row>(p.latent, p.latent_stride_t, p.rope, p.rope_stride_t),
      CacheRows<kKv, kDQk, kDV>(p),
      static_cast<const int64_t*>(p.slot_mapping),
      static_cast<const float*>(p.scale),
      p.num_tokens,
      p.power_of_two_scales != 0};
  const bool vectors = arguments.tokens.has_vectors() && arguments.cache.has_vectors();
  const auto kernel =
      vectors ? store_kernel<kIn, kKv, kDQk, kDV, true> : store_kernel<kIn, kKv, kDQk, kDV, false>;
  kernel<<<blocks_for(p.num_tokens, kBlockRows), kRowThreads, 0, cuda_stream(stream)>>>(arguments);
  return check(cudaGetLastError(), "store_kv");
}

}  // namespace mla::cuda
