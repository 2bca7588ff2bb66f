// Copies rows of bytes as they are in memory, some at a time by a warp, asynchronously. Rows that
// do not exist become zeros.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/common/copy_vector.cuh"
#include "sm90/mainloop/rows_m64/format_byte_rows.cuh"

namespace mla::sm90::rows_m64 {

// @pre The offset counts 16 bytes, or is that of no row.
template <class Staging>
__device__ __forceinline__ void copy_vector(const uint4* base, uint32_t offset, void* to) {
  mla::sm90::copy_vector<L2Reads::sectors, Staging::kAbsent>(base + offset, to, offset);
}

// The offsets of the rows that a lane copies of a step, counted in 16 bytes, and of the scales that
// it copies. They are read together: each read waits for what is stored before it.
template <class Format, class Rows>
struct StepOffsets {
  static constexpr uint32_t kRows = Format::Staging::kRows;
  static constexpr uint32_t kRopeVectors = kChunkVectors<typename Format::Element>;
  static constexpr uint32_t kRest = Rows::kVectors > kWarp ? Rows::kVectors - kWarp : 1;

  // Scales that follow the rows of a page have offsets of their own, counted in 8 bytes.
  __device__ __forceinline__ StepOffsets(const uint32_t* offsets, const uint32_t* scale_offsets) {
    const uint32_t lane = read_lane_index();
    of_rows = *reinterpret_cast<const uint4*>(offsets);
    if constexpr (Rows::kVectors > kWarp) {
      of_rest = offsets[lane / (Format::kHasKeyChunk ? kRopeVectors : kRest) % kRows];
      if constexpr (Format::kHasKeyChunk) of_scales = offsets[lane % kRows];
    }
    if constexpr (Rows::kHasPageScales) of_scales = scale_offsets[lane % kRows];
  }

  uint4 of_rows;
  uint32_t of_rest;
  uint32_t of_scales;
};

// Copies what rows have beyond a vector of each lane.
template <class Format, class Rows>
__device__ __forceinline__ void copy_rest(
    const uint4* base, const StepOffsets<Format, Rows>& offsets,
    typename Format::Staging::Row (&to)[Format::Staging::kRows]) {
  using Staging = typename Format::Staging;
  constexpr uint32_t kRows = Staging::kRows;
  const uint32_t lane = read_lane_index();
  if constexpr (Format::kHasKeyChunk) {
    constexpr uint32_t kVectors = StepOffsets<Format, Rows>::kRopeVectors;
    static_assert(kRows * kVectors == kWarp);
    const uint32_t k = lane / kVectors;
    const uint32_t vector = lane % kVectors;
    copy_vector<Staging>(base + Rows::kFormat.rope_offset / sizeof(uint4) + vector, offsets.of_rest,
                         to[k].bytes + Rows::kFormat.rope_offset + vector * sizeof(uint4));
    if (lane < kRows) {
      copy_vector<Staging>(base + Rows::kScaleOffset / sizeof(uint4), offsets.of_scales,
                           to[lane].bytes + Rows::kScaleOffset);
    }
  } else {
    constexpr uint32_t kRest = StepOffsets<Format, Rows>::kRest;
    static_assert(kRows * kRest <= kWarp);
    const uint32_t k = lane / kRest;
    const uint32_t vector = kWarp + lane % kRest;
    if (k < kRows) {
      copy_vector<Staging>(base + vector, offsets.of_rest, to[k].bytes + vector * sizeof(uint4));
    }
  }
}

template <class Format, class Rows>
__device__ __forceinline__ void copy_byte_rows(
    const uint4* base, const StepOffsets<Format, Rows>& offsets,
    typename Format::Staging::Row (&to)[Format::Staging::kRows]) {
  using Staging = typename Format::Staging;
  constexpr uint32_t kRows = Staging::kRows;
  const uint32_t lane = read_lane_index();
  const uint4& of_rows = offsets.of_rows;
  const uint32_t offset[kRows] = {of_rows.x, of_rows.y, of_rows.z, of_rows.w};
  const uint4* of_lane = base + lane;
  asm("" : "+l"(of_lane));  // or the compiler adds lanes to offsets, each with a carry
  if (Rows::kVectors >= kWarp || lane < Rows::kVectors) {
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      copy_vector<Staging>(of_lane, offset[k], to[k].bytes + lane * sizeof(uint4));
    }
  }
  if constexpr (Rows::kVectors > kWarp) copy_rest<Format, Rows>(base, offsets, to);
  if constexpr (Rows::kHasPageScales) {
    static_assert(Rows::kFormat.scale_bytes == sizeof(uint64_t));
    if (lane < kRows) {
      const uint32_t at = offsets.of_scales;
      cute::SM80_CP_ASYNC_CACHEALWAYS_ZFILL<uint64_t>::copy(
          reinterpret_cast<const uint64_t*>(base)[at == Staging::kAbsent ? 0 : at],
          *reinterpret_cast<uint64_t*>(to[lane].bytes + Rows::kScaleOffset),
          at != Staging::kAbsent);
    }
  }
}

}  // namespace mla::sm90::rows_m64
