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

// The query tokens of a request.
struct QueryTokens {
  int32_t first;  // of a tensor: the request's batch or, if requests differ, its first token
  int32_t count;
};

// Where the query tokens of requests begin that have different numbers of them, and where those of
// the last one end. Bounds come from the caller's device memory: they are clamped, so that no bound
// leads out of the tensor.
struct QueryBounds {
  const int32_t* bounds;  // [requests + 1]; null: every request has its batch of the tensor
  int32_t tokens;         // of all requests

  // The tokens of a request, of which there are `most`.
  MLA_HOST_DEVICE QueryTokens of(int32_t request, int32_t most) const {
    if (bounds == nullptr) return {request, most};
    const int32_t first = clamped(bounds[request], tokens);
    return {first, clamped(clamped(bounds[request + 1], tokens) - first, most)};
  }

 private:
  static MLA_HOST_DEVICE int32_t clamped(int32_t number, int32_t most) {
    return number < 0 ? 0 : number < most ? number : most;
  }
};

// A tensor [batch, query token, head]. Where requests have different numbers of tokens, all strides
// but the last are those of a token: a request is found by its first one.
struct RowView {
  void* data;
  int64_t stride[3];

  template <class T>
  MLA_HOST_DEVICE T* at(int64_t first, int64_t s, int64_t h) const {
    return static_cast<T*>(data) + first * stride[0] + s * stride[1] + h * stride[2];
  }

  MLA_HOST_DEVICE QueryCoordinates coordinates(int32_t first, int32_t s) const {
    return {s, first};
  }
};

// A view says where the latent and rope rows of queries are.
template <class View>
struct QueryView {
  CUtensorMap latent_map;  // if by_tma
  CUtensorMap rope_map;
  // The heads of a token, as the maps have them: num_heads, or all query rows of a request, if its
  // tokens lie one after the other.
  Divisor map_heads;
  View latent;
  View rope;
  int32_t is_aligned_to_16;  // bytes
  int32_t by_tma;            // a tile is one box of the maps
  int32_t is_one_batch;      // requests have different numbers of tokens
  int32_t first_is_early;    // that of a block's first work tile does not wait for the length

  MLA_HOST_DEVICE QueryCoordinates coordinates(int32_t first, int32_t s) const {
    return is_one_batch ? QueryCoordinates{first + s, 0} : latent.coordinates(first, s);
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
