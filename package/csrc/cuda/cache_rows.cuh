#pragma once

#include <cstddef>
#include <cstdint>

#include "common/checks.h"
#include "common/dtype.h"
#include "cuda/divisor.h"
#include "cuda/launch.h"
#include "cuda/pack.cuh"

namespace mla::cuda {

// Eight lanes move a row, which is eight chunks of the latent and one of the rope part; each lane
// moves a pack of each chunk.
inline constexpr int kRowLanes = 8;
inline constexpr int kChunk = kRowLanes * kPack;
inline constexpr int kLatentChunks = kLatent / kChunk;
inline constexpr int kBlockRows = 8;  // few, so that few rows spread over many multiprocessors
inline constexpr int kRowThreads = kBlockRows * kRowLanes;
static_assert(kLatentChunks * kChunk == kLatent && kChunk == kRope);

__device__ inline int row_lane() { return threadIdx.x % kRowLanes; }
__device__ inline int64_t first_row() {
  return int64_t{blockIdx.x} * kBlockRows + threadIdx.x / kRowLanes;
}
__device__ inline int64_t row_step() { return int64_t{gridDim.x} * kBlockRows; }

// A lane's elements in a chunk lie together, or in halves where a pack of them is two vectors, so
// that the lanes write whole sectors.
enum class Packing { whole, halves };

template <DType kType, int kAligned, Packing kPacking = Packing::whole>
__device__ __forceinline__ RawPack<kType> load_pack(const std::byte* chunk, int lane) {
  constexpr int kParts = kPacking == Packing::halves ? 2 : 1;
  using Part = Raw<sizeof(RawPack<kType>) / kParts>;
  RawPack<kType> pack;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const std::byte* const from = chunk + (i * kRowLanes + lane) * sizeof(Part);
    set_part(pack, i, load<Part, kAligned>(from));
  }
  return pack;
}

template <DType kType, int kAligned, Packing kPacking = Packing::whole>
__device__ __forceinline__ void store_pack(const RawPack<kType>& pack, std::byte* chunk, int lane) {
  constexpr int kParts = kPacking == Packing::halves ? 2 : 1;
  using Part = Raw<sizeof(RawPack<kType>) / kParts>;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    std::byte* const to = chunk + (i * kRowLanes + lane) * sizeof(Part);
    store<kAligned>(to, part<Part>(pack, i));
  }
}

template <DType kType>
struct RowPacks {
  RawPack<kType> latent[kLatentChunks];
  RawPack<kType> rope;
};

template <DType kType, int kAligned, Packing kPacking = Packing::whole>
__device__ __forceinline__ RowPacks<kType> load_row(const std::byte* latent, const std::byte* rope,
                                                    int lane) {
  constexpr int kBytes = kChunk * kElementBytes<kType>;
  RowPacks<kType> packs;
#pragma unroll
  for (int i = 0; i < kLatentChunks; ++i) {
    packs.latent[i] = load_pack<kType, kAligned, kPacking>(latent + i * kBytes, lane);
  }
  packs.rope = load_pack<kType, kAligned, kPacking>(rope, lane);
  return packs;
}

template <DType kType, int kAligned, Packing kPacking = Packing::whole>
__device__ __forceinline__ void store_row(const RowPacks<kType>& packs, std::byte* latent,
                                          std::byte* rope, int lane) {
  constexpr int kBytes = kChunk * kElementBytes<kType>;
#pragma unroll
  for (int i = 0; i < kLatentChunks; ++i) {
    store_pack<kType, kAligned, kPacking>(packs.latent[i], latent + i * kBytes, lane);
  }
  store_pack<kType, kAligned, kPacking>(packs.rope, rope, lane);
}

// Rows whose latent and rope part have strides of their own, in bytes.
struct TokenRows {
  std::byte* latent_data;
  int64_t latent_stride;
  std::byte* rope_data;
  int64_t rope_stride;

  __device__ std::byte* latent(int64_t i) const { return latent_data + i * latent_stride; }
  __device__ std::byte* rope(int64_t i) const { return rope_data + i * rope_stride; }

  bool has_vectors() const {
    return is_aligned(latent_data, kVector) && is_multiple(latent_stride, kVector) &&
           is_aligned(rope_data, kVector) && is_multiple(rope_stride, kVector);
  }
};

template <DType kType>
TokenRows token_rows(void* latent, int64_t latent_stride, void* rope, int64_t rope_stride) {
  constexpr int64_t kBytes = kElementBytes<kType>;
  return {static_cast<std::byte*>(latent), latent_stride * kBytes, static_cast<std::byte*>(rope),
          rope_stride * kBytes};
}

// Finds the rows of a cache [num_pages, page_size] by global slot, page * page_size + offset.
template <DType kKv>
class CacheRows {
 public:
  // It takes every problem that has one cache.
  template <class Problem>
  explicit CacheRows(const Problem& p)
      : latent_{static_cast<std::byte*>(p.kv_latent), p.kv_latent_stride_page * kBytes,
                p.kv_latent_stride_token * kBytes},
        rope_{static_cast<std::byte*>(p.kv_rope), p.kv_rope_stride_page * kBytes,
              p.kv_rope_stride_token * kBytes},
        slots_(saturating_product({p.num_pages, p.page_size})),
        page_size_(p.page_size),
        divisor_(static_cast<uint32_t>(std::clamp<int64_t>(p.page_size, 1, kSmallSlots))) {}

  Status check() const {
    const int64_t rope_slots = kHasRopeView ? slots_ : 0;
    MLA_TRY(
        check_present({{"kv_cache", latent_.data, slots_}, {"kv_cache", rope_.data, rope_slots}}));
    return check_aligned({{"kv_cache", latent_.data, kBytes},
                          {"kv_cache", kHasRopeView ? rope_.data : nullptr, kBytes}});
  }

  bool has_vectors() const {
    return latent_.has_vectors() && (!kHasRopeView || rope_.has_vectors());
  }

  struct Row {
    std::byte* latent;
    std::byte* rope;
  };

  __device__ bool has(int64_t slot) const { return slot >= 0 && slot < slots_; }

  __device__ Row at(int64_t slot) const {
    const int64_t page =
        slot < kSmallSlots ? divisor_.quotient(static_cast<uint32_t>(slot)) : slot / page_size_;
    const int64_t offset = slot - page * page_size_;
    std::byte* const latent = latent_.at(page, offset);
    if constexpr (kHasRopeView) {
      return {latent, rope_.at(page, offset)};
    } else {
      return {latent, latent + kRopeOffset};
    }
  }

 private:
  static constexpr int64_t kBytes = kElementBytes<kKv>;
  static constexpr int64_t kSmallSlots = int64_t{1} << 31;
  static constexpr bool kHasRopeView = kCacheFormat<kKv>.has_rope_view();
  static constexpr int64_t kRopeOffset = kCacheFormat<kKv>.rope_offset;

  struct View {
    std::byte* data;
    int64_t stride_page;
    int64_t stride_token;

    __device__ std::byte* at(int64_t page, int64_t offset) const {
      return data + page * stride_page + offset * stride_token;
    }

    bool has_vectors() const {
      return is_aligned(data, kVector) && is_multiple(stride_page, kVector) &&
             is_multiple(stride_token, kVector);
    }
  };

  View latent_;
  View rope_;
  int64_t slots_;
  int64_t page_size_;
  Divisor divisor_;  // by page_size, for slots that are below kSmallSlots
};

}  // namespace mla::cuda
