// Where the rows are that a query token selects, of a cache or of two.
#pragma once

#include "sm90/params/sparse.h"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90::sparse_decode {

// What a request selects.
struct Selection {
  const int32_t* main;
  const int32_t* extra;
  int32_t main_end;  // indices from here on do not count
  int32_t end;
};

__device__ __forceinline__ Selection selection_of(const Params& params, const WorkTile& work) {
  const QueryCoordinates at = params.query.coordinates(work.request, 0);
  const auto indices = [=](const SelectedKvView& kv) {
    return kv.indices + at.b * kv.indices_stride[0] + at.s * kv.indices_stride[1];
  };
  const int32_t* const main = indices(params.main);
  if (params.extra.topk == 0) return {main, main, work.tokens, work.tokens};
  return {main, indices(params.extra), params.main.length_of(at.b, at.s), work.tokens};
}

class SelectedKvGather {
 public:
  struct Row {
    int32_t slot;
    bool is_extra;
  };
  static constexpr int32_t kNone = -1;

  __device__ __forceinline__ SelectedKvGather(const Params& params, const Selection& selection)
      : params_(params), selection_(selection) {}

  // Where the index of a token is; null: it has none.
  __device__ __forceinline__ const int32_t* index_of(int32_t token) const {
    const bool is_extra = token >= params_.extra_begins;
    if (token >= selection_.end || (!is_extra && token >= selection_.main_end)) return nullptr;
    return is_extra ? selection_.extra + (token - params_.extra_begins) : selection_.main + token;
  }
  // Reads what row() needs of a token, ahead of it: its slot.
  __device__ __forceinline__ int32_t look_up(int32_t token) const {
    const int32_t* const index = index_of(token);
    return index == nullptr ? kNone : __ldg(index);
  }

  __device__ __forceinline__ Row row(int32_t slot, int32_t token) const {
    return {slot, token >= params_.extra_begins};
  }
  __device__ __forceinline__ bool exists(const Row& row) const {
    return static_cast<uint32_t>(row.slot) < static_cast<uint32_t>(kv_of(row).slots);
  }

  // Returns the offset of a row of bytes in its cache, counted in 16 bytes.
  __device__ __forceinline__ uint32_t offset_in_16_bytes(const Row& row) const {
    const SelectedKvView& kv = kv_of(row);
    const uint32_t page = kv.page_size.quotient(row.slot);
    const uint32_t offset = kv.page_size.remainder(row.slot, page);
    return page * static_cast<uint32_t>(kv.latent_stride_page >> 4) +
           offset * static_cast<uint32_t>(kv.latent_stride_token >> 4);
  }

  // Returns the offset of the scales of a row that follow the `row_bytes` bytes each of the rows of
  // its page, counted in 8 bytes.
  __device__ __forceinline__ uint32_t page_scales_offset_in_8_bytes(const Row& row,
                                                                    uint32_t row_bytes) const {
    const SelectedKvView& kv = kv_of(row);
    const uint32_t page = kv.page_size.quotient(row.slot);
    const uint32_t offset = kv.page_size.remainder(row.slot, page);
    return page * static_cast<uint32_t>(kv.latent_stride_page >> 3) +
           kv.page_size.value() * (row_bytes >> 3) + offset;
  }

  template <class Element>
  __device__ __forceinline__ const Element* latent(const Row& row) const {
    const SelectedKvView& kv = kv_of(row);
    return at<Element>(kv, kv.latent, kv.latent_stride_page, kv.latent_stride_token, row.slot);
  }
  template <class Element>
  __device__ __forceinline__ const Element* rope(const Row& row) const {
    const SelectedKvView& kv = kv_of(row);
    return at<Element>(kv, kv.rope, kv.rope_stride_page, kv.rope_stride_token, row.slot);
  }

 private:
  __device__ __forceinline__ const SelectedKvView& kv_of(const Row& row) const {
    return row.is_extra ? params_.extra : params_.main;
  }

  template <class Element>
  static __device__ __forceinline__ const Element* at(const SelectedKvView& kv, const void* data,
                                                      int64_t page_stride, int64_t token_stride,
                                                      int32_t slot) {
    const uint32_t page = kv.page_size.quotient(slot);
    const uint32_t offset = kv.page_size.remainder(slot, page);
    return static_cast<const Element*>(data) + page * page_stride + offset * token_stride;
  }

  const Params& params_;
  const Selection& selection_;
};

__device__ __forceinline__ SelectedKvGather kv_rows_of(const Params& params,
                                                       const Selection& selection) {
  return {params, selection};
}

}  // namespace mla::sm90::sparse_decode
