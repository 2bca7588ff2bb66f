// The order of a partial result that the blocks merge themselves: that in which threads have what
// tensor cores sum up, so that a warp stores and loads 512 bytes at a stretch.
//
// Eight rows are 32 strips of 16 columns each. Of a strip, four lanes have a row; lane t of these
// has columns 2 t and 2 t + 1, and the same from column 8 on.
#pragma once

#include <cstdint>

#include "sm90/decode/params.h"

namespace mla::sm90 {

inline constexpr uint32_t kPackedRows = 8;
inline constexpr uint32_t kStripColumns = 16;
inline constexpr uint32_t kStrips = kLatent / kStripColumns;
inline constexpr uint32_t kStripElements = kStripColumns * kPackedRows;

// Four elements of `row`, of one of the four lanes, in strip 0; a strip further is kStripElements
// further.
MLA_HOST_DEVICE inline float* packed_at(const Partials& partials, uint32_t slot, uint32_t row,
                                        uint32_t lane) {
  const uint64_t group =
      (uint64_t{slot} * static_cast<uint32_t>(partials.rows) + row) / kPackedRows;
  return partials.out + group * (kStrips * kStripElements) + (row % kPackedRows * 4 + lane) * 4;
}

}  // namespace mla::sm90
