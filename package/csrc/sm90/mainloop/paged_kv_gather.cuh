// Where the row of a token is, if rows are looked up one by one.
#pragma once

#include "sm90/decode/params.h"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

// Of one request, in pages of any size.
class PagedRows {
 public:
  struct Row {
    int32_t page;
    int32_t offset;
  };

  __device__ PagedRows(const KvView& kv, const Item& item) : kv_(kv), item_(item) {}

  // What tells the row of a token, looked up ahead of it.
  __device__ __forceinline__ int32_t look_up(int32_t token) const {
    if (token >= item_.tokens) return -1;
    if (kv_.table == nullptr) return item_.request;
    return __ldg(kv_.table + item_.request * kv_.table_stride + kv_.page_size.quotient(token));
  }

  __device__ __forceinline__ Row row(int32_t page, int32_t token) const {
    const uint32_t offset = kv_.page_size.remainder(token, kv_.page_size.quotient(token));
    return {page, static_cast<int32_t>(offset)};
  }
  __device__ __forceinline__ bool exists(const Row& row) const {
    return static_cast<uint32_t>(row.page) < static_cast<uint32_t>(kv_.num_pages);
  }

  template <class Element>
  __device__ __forceinline__ const Element* latent(const Row& row) const {
    return static_cast<const Element*>(kv_.latent) + row.page * kv_.latent_stride_page +
           row.offset * kv_.latent_stride_token;
  }
  template <class Element>
  __device__ __forceinline__ const Element* rope(const Row& row) const {
    return static_cast<const Element*>(kv_.rope) + row.page * kv_.rope_stride_page +
           row.offset * kv_.rope_stride_token;
  }

 private:
  const KvView& kv_;
  const Item& item_;
};

// What a request's rows are looked up by.
__device__ __forceinline__ const Item& selection_of(const Params&, const Item& item) {
  return item;
}
__device__ __forceinline__ PagedRows rows_of(const Params& params, const Item& item) {
  return {params.kv, item};
}

}  // namespace mla::sm90
