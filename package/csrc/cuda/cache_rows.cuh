#pragma once

#include <cstddef>
#include <cstdint>

#include "common/checks.h"
#include "common/dtype.h"
#include "cuda/divisor.h"
#include "cuda/launch.h"
#include "cuda/pack.cuh"

namespace mla::cuda {

// Eight lanes move a row, which is chunks of the latent and, if any, one of the rope part; each
// lane moves a pack of each chunk.
inline constexpr int kRowLanes = 8;
inline constexpr int kChunk = kRowLanes * kPack;
inline constexpr int kBlockRows = 8;  // few, so that few rows spread over many multiprocessors
inline constexpr int kRowThreads = kBlockRows * kRowLanes;

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

// A lane's part of a row in elements of one type; that of the rope part is unused if there is none.
template <DType kType, int kChunks, bool kRopePart>
struct Packs {
  static constexpr DType kElement = kType;
  static constexpr int kLatentChunks = kChunks;
  static constexpr bool kHasRope = kRopePart;

  RawPack<kType> latent[kChunks];
  RawPack<kType> rope;
};

// A lane's part of a row that has the columns of a format.
template <DType kType, DType kKv, int kDQk, int kDV>
using RowPacks = Packs<kType, kCacheFormat<kKv, kDQk, kDV>.latent / kChunk,
                       (kCacheFormat<kKv, kDQk, kDV>.rope > 0)>;

template <class Packs, int kAligned, Packing kPacking = Packing::whole>
__device__ __forceinline__ Packs load_row(const std::byte* latent, const std::byte* rope,
                                          int lane) {
  constexpr DType kType = Packs::kElement;
  constexpr int kBytes = kBytesOf<kType, kChunk>;
  Packs packs;
#pragma unroll
  for (int i = 0; i < Packs::kLatentChunks; ++i) {
    packs.latent[i] = load_pack<kType, kAligned, kPacking>(latent + i * kBytes, lane);
  }
  if constexpr (Packs::kHasRope) packs.rope = load_pack<kType, kAligned, kPacking>(rope, lane);
  return packs;
}

template <int kAligned, Packing kPacking = Packing::whole, class Packs>
__device__ __forceinline__ void store_row(const Packs& packs, std::byte* latent, std::byte* rope,
                                          int lane) {
  constexpr DType kType = Packs::kElement;
  constexpr int kBytes = kBytesOf<kType, kChunk>;
#pragma unroll
  for (int i = 0; i < Packs::kLatentChunks; ++i) {
    store_pack<kType, kAligned, kPacking>(packs.latent[i], latent + i * kBytes, lane);
  }
  if constexpr (Packs::kHasRope) store_pack<kType, kAligned, kPacking>(packs.rope, rope, lane);
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

template <class Packs>
TokenRows token_rows(void* latent, int64_t latent_stride, void* rope, int64_t rope_stride) {
  constexpr int64_t kBytes = kElementBytes<Packs::kElement>;
  TokenRows rows = {static_cast<std::byte*>(latent), latent_stride * kBytes, nullptr, 0};
  if constexpr (Packs::kHasRope) {
    rows.rope_data = static_cast<std::byte*>(rope);
    rows.rope_stride = rope_stride * kBytes;
  }
  return rows;
}

// Finds the rows of a cache [num_pages, page_size] by global slot, page * page_size + offset.
template <DType kKv, int kDQk, int kDV>
class CacheRows {
 public:
  // It takes every problem that has one cache.
  template <class Problem>
  explicit CacheRows(const Problem& p)
      : latent_{static_cast<std::byte*>(p.kv_latent), p.kv_latent_stride_page * kBytes,
                kHasPageScales ? kFormat.row_bytes : p.kv_latent_stride_token * kBytes},
        rope_{static_cast<std::byte*>(p.kv_rope), p.kv_rope_stride_page * kBytes,
              p.kv_rope_stride_token * kBytes},
        slots_(saturating_product({p.num_pages, p.page_size})),
        page_size_(p.page_size),
        stride_token_(p.kv_latent_stride_token),
        num_pages_(p.num_pages),
        divisor_(static_cast<uint32_t>(std::clamp<int64_t>(p.page_size, 1, kSmallSlots))) {}

  Status check() const {
    const int64_t rope_slots = kHasRopeView ? slots_ : 0;
    MLA_TRY(check_page_strides("kv_cache", kFormat, num_pages_, page_size_, latent_.stride_page,
                               stride_token_));
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
    std::byte* rope;    // if there is a rope part
    std::byte* scales;  // if the cache holds scales
  };

  __device__ bool has(int64_t slot) const { return slot >= 0 && slot < slots_; }

  __device__ Row at(int64_t slot) const {
    const int64_t page =
        slot < kSmallSlots ? divisor_.quotient(static_cast<uint32_t>(slot)) : slot / page_size_;
    const int64_t offset = slot - page * page_size_;
    std::byte* const latent = latent_.at(page, offset);
    if constexpr (kHasRopeView) {
      return {latent, rope_.at(page, offset), nullptr};
    } else if constexpr (kHasPageScales) {
      std::byte* const first = latent_.at(page, page_size_);
      return {latent, latent + kFormat.rope_offset, first + offset * kFormat.scale_bytes};
    } else {
      return {latent, latent + kFormat.rope_offset, latent + kFormat.scale_offset};
    }
  }

 private:
  static constexpr int64_t kBytes = kElementBytes<kKv>;
  static constexpr int64_t kSmallSlots = int64_t{1} << 31;
  static constexpr CacheFormat kFormat = kCacheFormat<kKv, kDQk, kDV>;
  static constexpr bool kHasRopeView = kFormat.has_rope_view();
  static constexpr bool kHasPageScales = kFormat.scale_place == ScalePlace::page;

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
  int64_t stride_token_;
  int64_t num_pages_;
  Divisor divisor_;  // by page_size, for slots that are below kSmallSlots
};

}  // namespace mla::cuda
