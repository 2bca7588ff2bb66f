// How the KV of a step is cut into parts: the shapes that decide it, and what the plan holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/divisor.h"
#include "sm90/common/tile.h"

namespace mla::sm90 {

using cuda::Divisor;

// More are merged by a kernel of its own.
inline constexpr int kMostParts = 144;

// Everything about the schedule that depends on shapes only.
struct Shape {
  int32_t batch;
  int32_t q_len;
  int32_t num_heads;
  Divisor heads;       // num_heads
  int32_t rows;        // of a request: q_len * num_heads
  int32_t cluster;     // blocks that share KV, each with a tile of rows
  int32_t groups;      // of cluster * kTileRows rows, in a request
  int32_t parts;       // runs of blocks of KV, each computed by one cluster a group
  int32_t max_splits;  // of a request; 0: as many as parts touch it

  // Of a row.
  MLA_HOST_DEVICE int32_t token_of(int32_t row) const { return heads.quotient(row); }
  MLA_HOST_DEVICE int32_t head_of(int32_t row) const { return row - token_of(row) * num_heads; }
};

// Where a part begins.
struct Boundary {
  int32_t request;
  int32_t block;    // of KV
  int32_t split;    // of the request
  int32_t in_pair;  // the request is cut in two, and neither piece shares its part
};

// The arrays in a plan's buffer.
struct PlanView {
  Boundary* boundaries;    // [parts + 1]
  int32_t* first_partial;  // [batch + 1]: partial results of request r are [first[r], first[r + 1])
  int32_t* split_blocks;   // [batch]: blocks of a split, if max_splits > 0
  int64_t* costs;          // [batch + 1]: scratch of the plan kernel

  MLA_HOST_DEVICE PlanView(const void* buffer, const Shape& shape) {
    char* at = static_cast<char*>(const_cast<void*>(buffer));
    costs = reinterpret_cast<int64_t*>(at);
    at += (shape.batch + 2) / 2 * 2 * sizeof(int64_t);
    boundaries = reinterpret_cast<Boundary*>(at);
    at += (shape.parts + 1) * sizeof(Boundary);
    first_partial = reinterpret_cast<int32_t*>(at);
    split_blocks = first_partial + shape.batch + 1;
  }

  MLA_HOST_DEVICE Boundary boundary(int part) const { return boundaries[part]; }
  MLA_HOST_DEVICE int32_t first_partial_of(int request) const { return first_partial[request]; }
  MLA_HOST_DEVICE int32_t split_blocks_of(int request) const { return split_blocks[request]; }
  // Of a request; 0 if it is not split.
  MLA_HOST_DEVICE int32_t partials_of(int request) const {
    return first_partial[request + 1] - first_partial[request];
  }

  static int64_t bytes(const Shape& shape) {
    const int64_t batch = shape.batch;
    return (batch + 2) / 2 * 2 * sizeof(int64_t) + (shape.parts + 1) * sizeof(Boundary) +
           (2 * batch + 1) * sizeof(int32_t);
  }
};

}  // namespace mla::sm90
