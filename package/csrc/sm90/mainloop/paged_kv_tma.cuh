// Where the boxes of tiles are in a paged cache. A box is tokens of one page that one instruction
// of TMA loads.
#pragma once

#include "sm90/common/views.h"
#include "sm90/common/warp.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

struct TokenBox {
  int32_t page;
  int32_t offset;  // of its first token in the page
};

// The pages of the first 32 boxes from a block of KV on, one a lane. They are on their way while
// the length of the request is, so the last ones may lie beyond its tokens.
class FirstPages {
 public:
  FirstPages() = default;
  // No request has more than `capacity` tokens.
  __device__ __forceinline__ FirstPages(const PagedKvView& kv, int32_t capacity, int32_t request,
                                        int32_t first_block) {
    page_ = request;
    if (kv.table == nullptr || capacity == 0) return;
    const uint32_t token = first_block * kTileTokens + threadIdx.x % kWarp * kv.box_tokens;
    page_ = __ldg(kv.table + request * kv.table_stride +
                  kv.page_size.quotient(min(token, capacity - 1u)));
  }

  // Returns a lane's page; beyond the last of `exists`, the lanes whose boxes have tokens, it is
  // that one's.
  __device__ __forceinline__ int32_t page(uint32_t exists) const {
    const int lane = threadIdx.x % kWarp;
    return __shfl_sync(~0u, page_, min(lane, 31 - __clz(exists)));
  }

 private:
  int32_t page_;
};

// The boxes of a work tile, counted from its first. All lanes of a warp call this: each knows every
// 32nd box, and the page of the one after that is on its way.
class PagedKvTma {
  // A box is no smaller than a group, so that the lanes of a warp know all boxes of a tile.
  static_assert(kTileTokens / kSwizzleRows <= kWarp);

 public:
  // @pre The work tile has tokens, and `pages` begin where it does.
  __device__ __forceinline__ PagedKvTma(const PagedKvView& kv, const WorkTile& work,
                                        const FirstPages& pages)
      : kv_(kv), work_(work), lane_(threadIdx.x % kWarp) {
    const bool exists = first_token_of(lane_) < static_cast<uint32_t>(work.tokens);
    set_box(pages.page(__ballot_sync(~0u, exists)), lane_);
  }

  // Requests the pages after the first 32 boxes; called once, when the first tile has been asked
  // for. The compiler would let that wait for these pages too.
  __device__ __forceinline__ void read_ahead() { next_page_ = page_of(kWarp + lane_); }

  // Called for every tile in turn, before its boxes are asked for.
  __device__ __forceinline__ void begin_tile(int block) {
    const int box = (block - work_.first_block) * kv_.tile_boxes;
    first_lane_ = box % kWarp;
    if (first_lane_ == 0 && box > 0) {
      set_box(next_page_, box + lane_);
      next_page_ = page_of(box + kWarp + lane_);
    }
  }

  // Returns a box of the tile.
  __device__ __forceinline__ TokenBox box(int box) const {
    return {__shfl_sync(~0u, box_.page, first_lane_ + box),
            __shfl_sync(~0u, box_.offset, first_lane_ + box)};
  }

  // A bit for each token of the tile that exists, if `tokens` of the request are left.
  __device__ __forceinline__ uint64_t present(int32_t tokens) const {
    const uint64_t left = tokens >= kTileTokens ? ~uint64_t{0} : (uint64_t{1} << tokens) - 1;
    const uint64_t all = ~uint64_t{0} >> (kTileTokens - kv_.box_tokens);
    uint64_t existing = 0;
#pragma unroll 1
    for (int box = 0; box < kv_.tile_boxes; ++box) {
      if (exist_ >> (first_lane_ + box) & 1) existing |= all << box * kv_.box_tokens;
    }
    return left & existing;
  }

 private:
  __device__ __forceinline__ void set_box(int32_t page, int box) {
    // Beyond the work tile the token may exceed what Divisor takes, but nobody asks for that box.
    const uint32_t token = first_token_of(box);
    const uint32_t offset = kv_.page_size.remainder(token, kv_.page_size.quotient(token));
    box_ = {page, static_cast<int32_t>(offset)};
    exist_ = __ballot_sync(~0u, static_cast<uint32_t>(page) < static_cast<uint32_t>(kv_.num_pages));
  }

  // Returns the page of a box; beyond the request's last token, it is that token's page.
  __device__ __forceinline__ int32_t page_of(int box) const {
    if (kv_.table == nullptr) return work_.request;
    const uint32_t token = min(first_token_of(box), work_.tokens - 1u);
    return __ldg(kv_.table + work_.request * kv_.table_stride + kv_.page_size.quotient(token));
  }

  __device__ __forceinline__ uint32_t first_token_of(int box) const {
    return static_cast<uint32_t>(work_.first_block) * kTileTokens +
           static_cast<uint32_t>(box) * kv_.box_tokens;
  }

  const PagedKvView& kv_;
  const WorkTile& work_;
  const int lane_;
  TokenBox box_;
  uint32_t exist_;  // a bit for each lane's box
  int32_t next_page_;
  int first_lane_;  // which knows the tile's first box
};

}  // namespace mla::sm90
