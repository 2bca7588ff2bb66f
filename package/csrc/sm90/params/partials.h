// Partial results: what the splits of a request store, and what a combine adds up.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "cuda/host_device.h"

namespace mla::sm90 {

inline constexpr uint32_t kFragmentRows = 8;
inline constexpr uint32_t kFragmentColumns = 32;
inline constexpr uint32_t kMaxFragments = kLatent / kFragmentColumns;
inline constexpr uint32_t kFragmentLanes = 32;
inline constexpr uint32_t kLaneSums = kFragmentRows * kFragmentColumns / kFragmentLanes;

// Eight rows of a partial result, as they are stored where the attention kernel itself combines: in
// the order in which threads hold what tensor cores sum up, so that a warp stores and loads the 512
// bytes of a fragment at a stretch (combine/fragments.cuh). The sums of a lane are fp16 and share a
// power of 2, since those of a cache of bf16 can be larger and smaller than fp16 holds.
struct alignas(16) Fragments {
  uint16_t sums[kMaxFragments][kFragmentLanes][kLaneSums];
  uint8_t exponents[kMaxFragments][kFragmentLanes];  // of the powers of 2, biased as those of fp32
};

// Indexed by partial result and row; rows are padded to whole tiles. Where the combine kernel
// combines, `out` has rows of fp32 and no fragments.
struct Partials {
  void* out;   // [partials, rows / kFragmentRows] of Fragments, or [partials, rows, kLatent]
  float* lse;  // [partials, rows]
  int32_t rows;
  uint32_t* stored_splits;  // [blocks of the grid], if the attention kernel combines

  // Where the number of a row is, in an array [partials, rows].
  template <class Number>
  MLA_HOST_DEVICE Number* at(Number* numbers, int partial, int row) const {
    return numbers + (int64_t{partial} * rows + row);
  }

  // The fragments of a row and of those that share them.
  MLA_HOST_DEVICE Fragments* fragments(uint32_t partial, uint32_t row) const {
    return static_cast<Fragments*>(out) +
           (uint64_t{partial} * static_cast<uint32_t>(rows) + row) / kFragmentRows;
  }
  // A row of fp32.
  MLA_HOST_DEVICE float* row(uint32_t partial, uint32_t row) const {
    return static_cast<float*>(out) +
           (uint64_t{partial} * static_cast<uint32_t>(rows) + row) * kLatent;
  }
};

}  // namespace mla::sm90
