// Where the rows are that a token selects.
#pragma once

#include "sm90/decode/walk.cuh"
#include "sm90/sparse/params.h"

namespace mla::sm90::sparse {

class SelectedRows {
 public:
  struct Row {
    int32_t slot;
    bool is_extra;
  };

  __device__ explicit SelectedRows(const SelectedParams& params) : params_(params) {}

  // The slot of a token, looked up ahead of it; -1: none.
  __device__ __forceinline__ int32_t look_up(const Item& item, int32_t token) const {
    if (token >= item.tokens) return -1;
    const int32_t q_len = params_.query.latent.q_len;
    const int32_t b = item.request / q_len;
    const int32_t s = item.request - b * q_len;
    if (token >= params_.extra_begins)
      return index(params_.extra, b, s, token - params_.extra_begins);
    // Beyond those that count, others may come.
    if (params_.extra.topk > 0 && token >= params_.main.length_of(b, s)) return -1;
    return index(params_.main, b, s, token);
  }

  __device__ __forceinline__ Row row(int32_t slot, int32_t token) const {
    return {slot, token >= params_.extra_begins};
  }
  __device__ __forceinline__ bool exists(const Row& row) const {
    return static_cast<uint32_t>(row.slot) < static_cast<uint32_t>(pool_of(row.is_extra).slots);
  }

  // Of a row of bytes, in pieces of 16: fewer than 2^32 of them are apart.
  __device__ __forceinline__ uint32_t piece(const Row& row) const {
    const Pool& pool = pool_of(row.is_extra);
    const auto size = static_cast<uint32_t>(pool.page_size);
    const uint32_t page = static_cast<uint32_t>(row.slot) / size;
    const uint32_t offset = static_cast<uint32_t>(row.slot) - page * size;
    return page * static_cast<uint32_t>(pool.latent_stride_page / 16) +
           offset * static_cast<uint32_t>(pool.latent_stride_token / 16);
  }

  template <class Element>
  __device__ __forceinline__ const Element* latent(const Row& row) const {
    const Pool& pool = pool_of(row.is_extra);
    return at<Element>(pool, pool.latent, pool.latent_stride_page, pool.latent_stride_token,
                       row.slot);
  }
  template <class Element>
  __device__ __forceinline__ const Element* rope(const Row& row) const {
    const Pool& pool = pool_of(row.is_extra);
    return at<Element>(pool, pool.rope, pool.rope_stride_page, pool.rope_stride_token, row.slot);
  }

 private:
  static __device__ __forceinline__ int32_t index(const Pool& pool, int32_t b, int32_t s,
                                                  int32_t i) {
    return __ldg(pool.indices + b * pool.indices_stride[0] + s * pool.indices_stride[1] + i);
  }

  __device__ __forceinline__ const Pool& pool_of(bool is_extra) const {
    return is_extra ? params_.extra : params_.main;
  }

  template <class Element>
  static __device__ __forceinline__ const Element* at(const Pool& pool, const void* data,
                                                      int64_t page_stride, int64_t token_stride,
                                                      int32_t slot) {
    const auto size = static_cast<uint32_t>(pool.page_size);
    const uint32_t page = static_cast<uint32_t>(slot) / size;
    const uint32_t offset = static_cast<uint32_t>(slot) - page * size;
    return static_cast<const Element*>(data) + page * page_stride + offset * token_stride;
  }

  const SelectedParams& params_;
};

__device__ __forceinline__ SelectedRows rows_of(const SelectedParams& params) {
  return SelectedRows(params);
}

}  // namespace mla::sm90::sparse
