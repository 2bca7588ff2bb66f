// Where the rows are that a token selects.
#pragma once

#include "sm90/scheduler/tile_scheduler.cuh"
#include "sm90/sparse_decode/params.h"

namespace mla::sm90::sparse {

// What a request selects.
struct Selection {
  const int32_t* main;
  const int32_t* extra;
  int32_t main_end;  // beyond those that count, others may come
  int32_t end;
};

__device__ __forceinline__ Selection selection_of(const SelectedParams& params, const Item& item) {
  const BoxPlace at = params.query.box(item.request, 0);
  const auto indices = [=](const Pool& pool) {
    return pool.indices + at.b * pool.indices_stride[0] + at.s * pool.indices_stride[1];
  };
  const int32_t* const main = indices(params.main);
  if (params.extra.topk == 0) return {main, main, item.tokens, item.tokens};
  return {main, indices(params.extra), params.main.length_of(at.b, at.s), item.tokens};
}

// Of one request.
class SelectedRows {
 public:
  struct Row {
    int32_t slot;
    bool is_extra;
  };
  static constexpr int32_t kNone = -1;

  __device__ __forceinline__ SelectedRows(const SelectedParams& params, const Selection& selection)
      : params_(params), selection_(selection) {}

  // Where the slot of a token is; null: it has none.
  __device__ __forceinline__ const int32_t* place(int32_t token) const {
    const bool is_extra = token >= params_.extra_begins;
    if (token >= selection_.end || (!is_extra && token >= selection_.main_end)) return nullptr;
    return is_extra ? selection_.extra + (token - params_.extra_begins) : selection_.main + token;
  }
  // The slot, looked up ahead.
  __device__ __forceinline__ int32_t look_up(int32_t token) const {
    const int32_t* const place = this->place(token);
    return place == nullptr ? kNone : __ldg(place);
  }

  __device__ __forceinline__ Row row(int32_t slot, int32_t token) const {
    return {slot, token >= params_.extra_begins};
  }
  __device__ __forceinline__ bool exists(const Row& row) const {
    return static_cast<uint32_t>(row.slot) < static_cast<uint32_t>(pool_of(row).slots);
  }

  // Of a row of bytes, in pieces of 16 after the first: fewer than 2^32 are apart.
  __device__ __forceinline__ uint32_t piece(const Row& row) const {
    const Pool& pool = pool_of(row);
    const uint32_t page = pool.page_size.quotient(row.slot);
    const uint32_t offset = pool.page_size.remainder(row.slot, page);
    return page * static_cast<uint32_t>(pool.latent_stride_page >> 4) +
           offset * static_cast<uint32_t>(pool.latent_stride_token >> 4);
  }

  template <class Element>
  __device__ __forceinline__ const Element* latent(const Row& row) const {
    const Pool& pool = pool_of(row);
    return at<Element>(pool, pool.latent, pool.latent_stride_page, pool.latent_stride_token,
                       row.slot);
  }
  template <class Element>
  __device__ __forceinline__ const Element* rope(const Row& row) const {
    const Pool& pool = pool_of(row);
    return at<Element>(pool, pool.rope, pool.rope_stride_page, pool.rope_stride_token, row.slot);
  }

 private:
  __device__ __forceinline__ const Pool& pool_of(const Row& row) const {
    return row.is_extra ? params_.extra : params_.main;
  }

  template <class Element>
  static __device__ __forceinline__ const Element* at(const Pool& pool, const void* data,
                                                      int64_t page_stride, int64_t token_stride,
                                                      int32_t slot) {
    const uint32_t page = pool.page_size.quotient(slot);
    const uint32_t offset = pool.page_size.remainder(slot, page);
    return static_cast<const Element*>(data) + page * page_stride + offset * token_stride;
  }

  const SelectedParams& params_;
  const Selection& selection_;
};

__device__ __forceinline__ SelectedRows rows_of(const SelectedParams& params,
                                                const Selection& selection) {
  return {params, selection};
}

}  // namespace mla::sm90::sparse
