// How a token lies in a KV cache. The rows are in mla/formats.h.
#pragma once

#include <cstdint>

#include "common/arithmetic.h"
#include "common/traits.h"

namespace mla {

enum class ScalePlace : uint8_t {
  none,
  tensor,  // one scale for the whole cache, which is an argument of each op
  row,     // in each row
  page,    // after the rows of a page
};

// Where the scale of a group is among those of a token. Neighbouring groups, `interleave` of them,
// have theirs as far apart as possible.
MLA_ALWAYS_INLINE constexpr int scale_index(int group, int groups, int interleave) {
  return interleave == 1 ? group : group % interleave * (groups / interleave) + group / interleave;
}

// A row is the latent of a token, the scales that lie in the row, and the rope part. Widths count
// columns; sizes and offsets count bytes, offsets from the start of the row.
struct CacheFormat {
  const char* name;
  DType dtype;
  int d_qk;  // columns of queries and keys
  int d_v;   // leading columns that are the value
  int latent;
  DType latent_type;
  int rope;
  DType rope_type;
  ScalePlace scale_place;
  DType scale_type;
  int scale_group;       // columns of the latent that share a scale
  int scale_interleave;  // for scale_index
  int scale_bytes;       // of a token
  int scale_offset;
  int rope_offset;
  int row_bytes;
  int token_bytes;    // the row, and scales that lie elsewhere
  int page_multiple;  // pages are padded to a multiple of it
  bool is_bytes;      // the cache is an array of bytes, because it holds scales

  constexpr int scale_index(int group) const {
    return mla::scale_index(group, latent / scale_group, scale_interleave);
  }

  // Whether the rope part has a pointer and strides of its own.
  MLA_ALWAYS_INLINE constexpr bool has_rope_view() const { return !is_bytes && rope > 0; }

  // Whether store_kv writes its rows. Who writes MXFP4 rounds scales to the nearest power of two,
  // and store_kv rounds them up.
  constexpr bool is_written() const {
    return latent_type != DType::e2m1 || scale_type == DType::e4m3;
  }

  constexpr int64_t page_bytes(int64_t page_size) const {
    return round_up(page_size * token_bytes, page_multiple);
  }
};

}  // namespace mla
