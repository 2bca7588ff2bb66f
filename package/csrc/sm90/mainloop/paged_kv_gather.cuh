// Where the rows of a request's tokens are in a paged cache, one by one: pages of any size.
#pragma once

#include "sm90/params/dense.h"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

class PagedKvGather {
 public:
  struct Row {
    int32_t page;
    int32_t offset;
  };

  __device__ PagedKvGather(const PagedKvView& kv, const WorkTile& work) : kv_(kv), work_(work) {}

  // Reads what row() needs of a token, ahead of it: its page.
  __device__ __forceinline__ int32_t look_up(int32_t token) const {
    if (token >= work_.tokens) return -1;
    if (kv_.table == nullptr) return work_.request;
    return __ldg(kv_.table + work_.request * kv_.table_stride + kv_.page_size.quotient(token));
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
  const PagedKvView& kv_;
  const WorkTile& work_;
};

namespace decode {

// What finds the rows of a work tile, and the rows: overloads for the params of each op.
__device__ __forceinline__ const WorkTile& selection_of(const Params&, const WorkTile& work) {
  return work;
}
__device__ __forceinline__ PagedKvGather kv_rows_of(const Params& params, const WorkTile& work) {
  return {params.kv, work};
}

}  // namespace decode
}  // namespace mla::sm90
