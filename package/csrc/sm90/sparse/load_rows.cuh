// Loads rows of 656 bytes: codes and scales into slices, rope columns where tensor cores read them.
#pragma once

#include "sm90/decode/compute/copy_rows.cuh"
#include "sm90/decode/compute/load_query.cuh"
#include "sm90/sparse/format.cuh"
#include "sm90/sparse/rows.cuh"
#include "sm90/sparse/widen_rows.cuh"

namespace mla::sm90::sparse {

// The walk over a part, kept in shared memory by the one lane that makes it: a loader lacks
// registers.
class StoredWalk {
 public:
  __device__ StoredWalk(const SelectedParams& params, int part, Boundary& at)
      : params_(params), part_(part), at_(at) {
    if (threadIdx.x % kWarp == 0) at_ = params.schedule().boundary(part);
  }

  __device__ __forceinline__ bool next(Item& item) {
    Walk<SelectedParams> walk(params_, part_, at_);
    const bool found = walk.next(item);
    at_ = walk.at();
    return found;
  }

 private:
  const SelectedParams& params_;
  const int part_;
  Boundary& at_;
};

// By a warp, which tells the others the items. A lane looks up two tokens of a tile.
struct SliceLoader {
  using Format = mla::sm90::Format<DType::bf16, DType::fp8_ds_mla>;
  using Element = Format::Element;
  static constexpr int kWarps = 1;
  static constexpr int kSets = kTileTokens / kWarp;
  static constexpr int kSlicesOfSet = kWarp / RowSlices::kTokens;

  const SelectedParams& params;
  SharedMemory<Format>& shared;

  template <class Items>
  __device__ void run(Items items) const {
    const SelectedRows rows = rows_of(params);
    uint32_t tile = 0;   // of the rings
    uint32_t slice = 0;  // of all
    Item item;
    while (items.next(item)) {
      if (item.first >= item.end) continue;
      // Who does not wait for every use of a place cannot tell one from another. This one is Q's,
      // which neither comes before this warp has seen the place empty, nor is gone by then.
      wait_for_rope(tile++);
      cutlass::arch::NamedBarrier::sync(RowWidener::kQueryWaiters * kWarp, kQueryBarrier);
      int32_t own[kSets];
#pragma unroll
      for (int set = 0; set < kSets; ++set)
        own[set] = rows.look_up(item, token_of(item.first, set));
      for (; item.first < item.end; ++item.first) {
        const bool is_extra = item.first * kTileTokens >= params.extra_begins;
        const auto* const base =
            static_cast<const uint4*>(is_extra ? params.extra.latent : params.main.latent);
        uint32_t from[kSets];
        uint32_t present[kSets];
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          SelectedRows::Row row = {own[set], is_extra};
          const bool exists = rows.exists(row);
          present[set] = __ballot_sync(~0u, exists);
          if (!exists) row.slot = 0;
          from[set] = rows.piece(row);
        }
        // On their way while this tile is loaded.
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          own[set] = rows.look_up(item, token_of(item.first + 1, set));
        }
#pragma unroll
        for (int i = 0; i < RowSlices::kOfTile; ++i, ++slice) {
          const int set = i / kSlicesOfSet;
          const int first = i % kSlicesOfSet * RowSlices::kTokens;
          load_slice(Place<RowSlices::kSlots>(slice), base, from[set], present[set] >> first,
                     first);
        }
        load_rope(tile++, base, from, present);
      }
    }
  }

 private:
  static __device__ __forceinline__ int32_t token_of(int32_t block, int set) {
    return block * kTileTokens + set * kWarp + threadIdx.x % kWarp;
  }

  __device__ __forceinline__ void wait_for_rope(uint32_t tile) const {
    const auto place = rope_place<Format>(tile);
    shared.rope_empty[place.slot].wait(place.phase ^ 1);
  }

  // Of the tokens that the lanes from `first` on have looked up.
  __device__ __forceinline__ void load_slice(Place<RowSlices::kSlots> place, const uint4* base,
                                             uint32_t own, uint32_t present, int first) const {
    using Copy = cute::SM80_CP_ASYNC_CACHEGLOBAL<uint4>;
    const int lane = threadIdx.x % kWarp;
    auto& to = shared.codes.rows[place.slot];
    shared.codes.empty[place.slot].wait(place.phase ^ 1);
    if (lane == 0) shared.codes.present[place.slot] = present;
    shared.codes.full[place.slot].arrive();
#pragma unroll 2
    for (int k = 0; k < RowSlices::kTokens; ++k) {
      const uint4* const from = base + __shfl_sync(~0u, own, first + k) + lane;
      if (present >> k & 1) {
        Copy::copy(*from, *reinterpret_cast<uint4*>(to[k] + lane * sizeof(uint4)));
      }
    }
    const int k = lane % RowSlices::kTokens;
    const uint4* const scales = base + __shfl_sync(~0u, own, first + k) + kDsMlaScaleOffset / 16;
    if (lane < RowSlices::kTokens && (present >> k & 1)) {
      Copy::copy(*scales, *reinterpret_cast<uint4*>(to[k] + kDsMlaScaleOffset));
    }
    arrive(shared.codes.full[place.slot]);
  }

  __device__ __forceinline__ void load_rope(uint32_t tile, const uint4* base,
                                            const uint32_t (&from)[kSets],
                                            const uint32_t (&present)[kSets]) const {
    const auto place = rope_place<Format>(tile);
    wait_for_rope(tile);
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) shared.present[place.slot][set] = present[set];
    }
    shared.rope_full[place.slot].arrive();
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const auto* const rope =
          reinterpret_cast<const Element*>(base + from[set] + kDsMlaRopeOffset / 16);
      copy_rows<1>(rope, present[set], shared.rope[place.slot], set * kWarp);
    }
    arrive(shared.rope_full[place.slot]);
  }

  static __device__ __forceinline__ void arrive(FullBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<const uint64_t*>(&full));
  }
};

}  // namespace mla::sm90::sparse
