// Fragments of partial results: which columns a lane has of one, and how its sums become fp16.
//
// A fragment has sixteen columns of a chunk, and the same of the next chunk. Four lanes have a row
// of it; lane t of these has columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of each sixteen. So both
// schedules have the eight sums of a lane in one thread.
#pragma once

#include <cuda_fp16.h>

#include <cmath>

#include "sm90/common/elements.cuh"
#include "sm90/common/tile.h"
#include "sm90/common/warp.cuh"
#include "sm90/params/partials.h"

namespace mla::sm90 {

inline constexpr uint32_t kFragmentChunks = 2;
inline constexpr uint32_t kFragmentNeighbours = kFragmentColumns / kFragmentChunks;
inline constexpr uint32_t kChunkFragments = kChunk / kFragmentNeighbours;
static_assert(kFragmentLanes == kWarp && kLaneSums * sizeof(uint16_t) == sizeof(uint4));

// The first column of a fragment. Those that are not its neighbours are kChunk further.
__device__ __forceinline__ constexpr uint32_t fragment_column(uint32_t fragment) {
  return fragment / kChunkFragments * (kFragmentChunks * kChunk) +
         fragment % kChunkFragments * kFragmentNeighbours;
}

using LaneSums = float[kLaneSums];

// The sums of a lane of a fragment, as they are stored.
struct PackedSums {
  uint4 halves;
  uint32_t exponent;

  // What the halves are multiples of.
  __device__ __forceinline__ float scale() const { return __uint_as_float(exponent << 23); }

  // The i-th two of the halves.
  __device__ __forceinline__ float2 pair(uint32_t i) const {
    const uint32_t words[] = {halves.x, halves.y, halves.z, halves.w};
    return __half22float2(reinterpret_cast<const __half2&>(words[i]));
  }
};

// The greatest magnitude of the sums that are finite, or NaN if none is.
__device__ __forceinline__ float greatest_of(const LaneSums& sums) {
  // Infinity becomes NaN, and of a number and NaN, fmaxf returns the number.
  LaneSums magnitudes;
#pragma unroll
  for (uint32_t i = 0; i < kLaneSums; ++i) magnitudes[i] = fmaf(sums[i], 0, fabsf(sums[i]));
#pragma unroll
  for (uint32_t half = kLaneSums / 2; half > 0; half /= 2) {
#pragma unroll
    for (uint32_t i = 0; i < half; ++i) magnitudes[i] = fmaxf(magnitudes[i], magnitudes[half + i]);
  }
  return magnitudes[0];
}

// Multiplies sums by `factor` and rounds them to fp16 times a power of 2, by which the greatest of
// them becomes at least 2^14 and at most 2^15. So it has 11 bits, and so have sums down to 2^-28 of
// it. Infinity and NaN stay what they are.
__device__ __forceinline__ PackedSums pack_sums(const LaneSums& sums, float factor) {
  constexpr int kBias = 127;
  const auto biased = [](float x) { return static_cast<int>(__float_as_uint(fabsf(x)) >> 23); };
  // Neither the inverse of the power of 2 nor its product with the factor leaves fp32.
  const int exponent = max(max(biased(greatest_of(sums) * factor) - 14, biased(factor) - kBias), 1);
  const float scaled = factor * __uint_as_float(static_cast<uint32_t>(2 * kBias - exponent) << 23);
  const auto pair = [&](int i) {
    return pack_pair<cute::half_t>(sums[2 * i] * scaled, sums[2 * i + 1] * scaled);
  };
  return {{pair(0), pair(1), pair(2), pair(3)}, static_cast<uint32_t>(exponent)};
}

// Adds sums that have a weight. Without weight they add nothing, whatever they are.
__device__ __forceinline__ void add_sums(LaneSums& to, float weight, const PackedSums& packed) {
  if (weight == 0) return;
  const float factor = weight * packed.scale();
#pragma unroll
  for (uint32_t i = 0; i < kLaneSums / 2; ++i) {
    const float2 pair = packed.pair(i);
    to[2 * i] += factor * pair.x;
    to[2 * i + 1] += factor * pair.y;
  }
}

// Where the sums of a lane are, of a fragment and of those after it.
class FragmentLane {
 public:
  // `row` is any of those that share the fragment.
  __device__ __forceinline__ FragmentLane(const Partials& partials, uint32_t partial, uint32_t row,
                                          uint32_t fragment, uint32_t lane) {
    Fragments& fragments = *partials.fragments(partial, row);
    halves_ = reinterpret_cast<char*>(fragments.sums[fragment][lane]);
    exponents_ = reinterpret_cast<char*>(&fragments.exponents[fragment][lane]);
  }

  // `fragments` and `groups` of rows further.
  __device__ __forceinline__ PackedSums load(uint32_t fragments, uint32_t groups = 0) const {
    const uint32_t further = groups * sizeof(Fragments);
    return {__ldcg(reinterpret_cast<const uint4*>(halves_ + further) + fragments * kWarp),
            __ldcg(reinterpret_cast<const uint8_t*>(exponents_ + further) + fragments * kWarp)};
  }
  __device__ __forceinline__ void store(uint32_t fragments, uint32_t groups,
                                        const PackedSums& packed) const {
    const uint32_t further = groups * sizeof(Fragments);
    reinterpret_cast<uint4*>(halves_ + further)[fragments * kWarp] = packed.halves;
    reinterpret_cast<uint8_t*>(exponents_ + further)[fragments * kWarp] =
        static_cast<uint8_t>(packed.exponent);
  }

 private:
  char* halves_;
  char* exponents_;
};

}  // namespace mla::sm90
