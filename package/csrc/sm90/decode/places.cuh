// Where tiles are whose pages are whole tiles.
#pragma once

#include "sm90/decode/params.h"
#include "sm90/decode/ring.cuh"
#include "sm90/decode/walk.cuh"

namespace mla::sm90 {

struct TilePlace {
  int32_t page;
  int32_t offset;  // of its first token in the page
};

// A bit for each token, of which `tokens` are left.
__device__ __forceinline__ uint64_t tokens_present(const KvView& kv, const TilePlace& place,
                                                   int32_t tokens) {
  if (place.page < 0 || place.page >= kv.num_pages) return 0;
  return tokens >= kTileTokens ? ~uint64_t{0} : (uint64_t{1} << tokens) - 1;
}

// Of an item, by a warp. A lane has the place of every 32nd block; the next ones are on their way.
class TilePlaces {
 public:
  __device__ __forceinline__ TilePlaces(const KvView& kv, const Item& item)
      : kv_(kv),
        item_(item),
        lane_(threadIdx.x % kWarp),
        own_{page_of(item.first + lane_), offset_of(item.first + lane_)} {}

  // Once, before the first.
  __device__ __forceinline__ void read_ahead() {
    next_page_ = page_of(item_.first + kWarp + lane_);
  }

  // Of every block in turn.
  __device__ __forceinline__ TilePlace of(int block) {
    const int turn = (block - item_.first) % kWarp;
    if (turn == 0 && block > item_.first) {
      own_ = {next_page_, offset_of(block + lane_)};
      next_page_ = page_of(block + kWarp + lane_);
    }
    return {__shfl_sync(~0u, own_.page, turn), __shfl_sync(~0u, own_.offset, turn)};
  }

 private:
  // Of the last block, where there is none.
  __device__ __forceinline__ int32_t page_of(int32_t block) const {
    if (kv_.table == nullptr) return item_.request;
    const int32_t token = min(block, item_.end - 1) * kTileTokens;
    return __ldg(kv_.table + item_.request * kv_.table_stride + token / kv_.page_size);
  }

  __device__ __forceinline__ int32_t offset_of(int32_t block) const {
    return block * kTileTokens % kv_.page_size;
  }

  const KvView& kv_;
  const Item& item_;
  const int lane_;
  TilePlace own_;
  int32_t next_page_;
};

}  // namespace mla::sm90
