// Where the boxes of tiles are: tokens of one page that the accelerator loads together.
#pragma once

#include "sm90/common/pipeline.cuh"
#include "sm90/decode/params.h"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

struct BoxOfTokens {
  int32_t page;
  int32_t offset;  // of its first token in the page
};

// Of an item, by a warp. A lane has the place of every 32nd box; the next ones are on their way.
class TilePlaces {
 public:
  __device__ __forceinline__ TilePlaces(const KvView& kv, const Item& item)
      : kv_(kv), item_(item), lane_(threadIdx.x % kWarp) {
    take(page_of(lane_), lane_);
  }

  // Once, before the first tile.
  __device__ __forceinline__ void read_ahead() { next_page_ = page_of(kWarp + lane_); }

  // Of every tile in turn, before its boxes are asked for.
  __device__ __forceinline__ void begin(int block) {
    const int box = (block - item_.first) * kv_.tile_boxes;
    turn_ = box % kWarp;
    if (turn_ == 0 && box > 0) {
      take(next_page_, box + lane_);
      next_page_ = page_of(box + kWarp + lane_);
    }
  }

  __device__ __forceinline__ BoxOfTokens of(int box) const {
    return {__shfl_sync(~0u, own_.page, turn_ + box), __shfl_sync(~0u, own_.offset, turn_ + box)};
  }

  // A bit for each token of the tile, of which `tokens` are left.
  __device__ __forceinline__ uint64_t present(int32_t tokens) const {
    const uint64_t left = tokens >= kTileTokens ? ~uint64_t{0} : (uint64_t{1} << tokens) - 1;
    const uint64_t all = ~uint64_t{0} >> (kTileTokens - kv_.box_tokens);
    uint64_t existing = 0;
#pragma unroll 1
    for (int box = 0; box < kv_.tile_boxes; ++box) {
      if (exist_ >> (turn_ + box) & 1) existing |= all << box * kv_.box_tokens;
    }
    return left & existing;
  }

 private:
  __device__ __forceinline__ void take(int32_t page, int box) {
    // Beyond the item it may be more than can be divided, and nobody asks for that offset.
    const uint32_t token = first_token_of(box);
    const uint32_t offset = kv_.page_size.remainder(token, kv_.page_size.quotient(token));
    own_ = {page, static_cast<int32_t>(offset)};
    exist_ = __ballot_sync(~0u, static_cast<uint32_t>(page) < static_cast<uint32_t>(kv_.num_pages));
  }

  // Boxes count from the item's first. Of the last one, where there is none.
  __device__ __forceinline__ int32_t page_of(int box) const {
    if (kv_.table == nullptr) return item_.request;
    const uint32_t token = min(first_token_of(box), item_.tokens - 1u);
    return __ldg(kv_.table + item_.request * kv_.table_stride + kv_.page_size.quotient(token));
  }

  __device__ __forceinline__ uint32_t first_token_of(int box) const {
    return static_cast<uint32_t>(item_.first) * kTileTokens +
           static_cast<uint32_t>(box) * kv_.box_tokens;
  }

  const KvView& kv_;
  const Item& item_;
  const int lane_;
  BoxOfTokens own_;
  uint32_t exist_;  // a bit for each lane's box
  int32_t next_page_;
  int turn_;  // the lane of the tile's first box
};

}  // namespace mla::sm90
