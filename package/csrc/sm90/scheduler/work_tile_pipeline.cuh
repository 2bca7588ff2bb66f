// The items of a part on their way from the warp that walks over the plan to the others.
#pragma once

#include "sm90/common/pipeline.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

inline constexpr int kItemSlots = 4;

struct ItemRing {
  Item items[kItemSlots];
  Barrier full[kItemSlots];
  Barrier empty[kItemSlots];
};

// One thread tells the others the items, in order. The last has no request.
inline constexpr int kNoRequest = -1;

template <class Walk>
class ItemWriter {
 public:
  __device__ ItemWriter(ItemRing& ring, Walk walk) : ring_(ring), walk_(walk) {}

  // Whether there was one.
  __device__ __forceinline__ bool write() {
    Item item;
    const bool found = walk_.next(item);
    if (!found) item.request = kNoRequest;
    const Place<kItemSlots> place(count_++);
    ring_.empty[place.slot].wait(place.phase ^ 1);
    ring_.items[place.slot] = item;
    ring_.full[place.slot].arrive();
    return found;
  }

 private:
  ItemRing& ring_;
  Walk walk_;
  uint32_t count_ = 0;
};

// Whether there is one.
__device__ __forceinline__ bool read_item(ItemRing& ring, Item& item, uint32_t turn) {
  const Place<kItemSlots> place(turn);
  ring.full[place.slot].wait(place.phase);
  item = ring.items[place.slot];
  __syncwarp();  // without it, the loader that gathers lacks a register
  // By every lane: racecheck does not count what the others read as read before one arrives.
  ring.empty[place.slot].arrive();
  return item.request != kNoRequest;
}

class ItemReader {
 public:
  __device__ explicit ItemReader(ItemRing& ring) : ring_(ring) {}

  __device__ __forceinline__ bool next(Item& item) { return read_item(ring_, item, count_++); }

  // Of the item read last, from 1.
  __device__ __forceinline__ uint32_t turn() const { return count_; }

 private:
  ItemRing& ring_;
  uint32_t count_ = 0;
};

// For the warp that tells the others the items and works on them itself.
template <class Walk>
class ItemSource {
 public:
  __device__ ItemSource(ItemRing& ring, Walk walk) : writer_(ring, walk), reader_(ring) {}

  __device__ __forceinline__ bool next(Item& item) {
    if (threadIdx.x % kWarp == 0) writer_.write();
    __syncwarp();
    return reader_.next(item);
  }

 private:
  ItemWriter<Walk> writer_;
  ItemReader reader_;
};

}  // namespace mla::sm90
