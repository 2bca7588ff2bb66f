// Partial results: what the splits of a request store, and what a combine adds up.
//
// Where the attention kernel itself combines, columns lie in fragments, the order in which threads
// hold what tensor cores sum up, so that a warp stores and loads 512 bytes at a stretch. Eight rows
// are 32 fragments of 16 columns each. Four lanes hold a row of a fragment; lane t of these has
// columns 2 t and 2 t + 1, and the same from column 8 on. Where the combine kernel does it, rows
// are as they are.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "cuda/host_device.h"

namespace mla::sm90 {

// Indexed by partial result and row; rows are padded to whole tiles.
struct Partials {
  float* out;  // [partials, rows, kLatent]
  float* lse;  // [partials, rows]
  int32_t rows;

  // Where the number of a row is, in an array [partials, rows].
  template <class Number>
  MLA_HOST_DEVICE Number* at(Number* numbers, int partial, int row) const {
    return numbers + (int64_t{partial} * rows + row);
  }
};

inline constexpr uint32_t kFragmentRows = 8;
inline constexpr uint32_t kFragmentColumns = 16;
inline constexpr uint32_t kFragments = kLatent / kFragmentColumns;
inline constexpr uint32_t kFragmentElements = kFragmentColumns * kFragmentRows;

// The four elements of `row` that one of its four lanes has in fragment 0. In the next fragment
// they are kFragmentElements further.
MLA_HOST_DEVICE inline float* fragment_at(const Partials& partials, uint32_t partial, uint32_t row,
                                          uint32_t lane) {
  const uint64_t group =
      (uint64_t{partial} * static_cast<uint32_t>(partials.rows) + row) / kFragmentRows;
  return partials.out + group * (kFragments * kFragmentElements) +
         (row % kFragmentRows * 4 + lane) * 4;
}

}  // namespace mla::sm90
