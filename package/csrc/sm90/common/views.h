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

// A tensor [batch, query token, head], whose requests are those of the batch.
struct RowView {
  void* data;
  int64_t stride[3];

  MLA_HOST_DEVICE int64_t offset(int64_t b, int64_t s, int64_t h) const {
    return b * stride[0] + s * stride[1] + h * stride[2];
  }

  template <class T>
  MLA_HOST_DEVICE T* at(int64_t request, int64_t s, int64_t h) const {
    return static_cast<T*>(data) + offset(request, s, h);
  }

  MLA_HOST_DEVICE QueryCoordinates coordinates(int32_t request, int32_t s) const {
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
