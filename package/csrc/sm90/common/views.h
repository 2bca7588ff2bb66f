// Tensors as kernels are given them. Strides count elements.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/divisor.h"
#include "cuda/host_device.h"
#include "cuda/kv_view.h"

namespace mla::sm90 {

using cuda::Divisor;
using cuda::KvView;

// Where a box of queries is in its tensor map: query token and batch.
struct QueryCoordinates {
  int32_t s;
  int32_t b;
};

// Where the query tokens of requests begin that have different numbers of them, and where those of
// the last one end. Bounds come from the caller's device memory: they are clamped, so that no bound
// leads out of the tensor.
struct QueryBounds {
  const int32_t* bounds;  // [requests + 1]; null: every request has its batch of the tensor
  int32_t tokens;         // of all requests

  MLA_HOST_DEVICE int32_t begin(int32_t request) const { return clamped(bounds[request], tokens); }
  // The tokens of a request, of which there are `most`.
  MLA_HOST_DEVICE int32_t count(int32_t request, int32_t most) const {
    const int32_t first = begin(request);
    const int32_t left = clamped(bounds[request + 1], tokens) - first;
    return clamped(left, most);
  }

 private:
  static MLA_HOST_DEVICE int32_t clamped(int32_t number, int32_t most) {
    return number < 0 ? 0 : number < most ? number : most;
  }
};

// A tensor [batch, query token, head], whose requests are those of the batch, or tokens of one.
struct RowView {
  void* data;
  int64_t stride[3];  // the first one is 0 where there are bounds
  QueryBounds bounds;

  template <class T>
  MLA_HOST_DEVICE T* at(int32_t request, int64_t s, int64_t h) const {
    if (bounds.bounds != nullptr) s += bounds.begin(request);
    return static_cast<T*>(data) + request * stride[0] + s * stride[1] + h * stride[2];
  }

  MLA_HOST_DEVICE QueryCoordinates coordinates(int32_t request, int32_t s) const {
    if (bounds.bounds != nullptr) return {bounds.begin(request) + s, 0};
    return {s, request};
  }
};

// A view says where the latent and rope rows of queries are.
template <class View>
struct QueryView {
  CUtensorMap latent_map;  // if by_tma
  CUtensorMap rope_map;
  View latent;
  View rope;
  int32_t is_aligned_to_16;  // bytes
  int32_t by_tma;            // a tile is a box: whole tokens, or some heads of one token

  MLA_HOST_DEVICE QueryCoordinates coordinates(int32_t request, int32_t s) const {
    return latent.coordinates(request, s);
  }
};

// A cache that requests find by a page table. Contiguous KV is a page a request, without a table.
struct PagedKvView : KvView {
  const int32_t* table;
  int64_t table_stride;
  int32_t num_pages;
  Divisor page_size;
  int32_t box_tokens;    // of one page, which one instruction of TMA loads
  int32_t tile_boxes;    // kTileTokens / box_tokens
  int32_t is_in_groups;  // a box is groups of kSwizzleRows tokens, in a dimension of their own
};

}  // namespace mla::sm90
