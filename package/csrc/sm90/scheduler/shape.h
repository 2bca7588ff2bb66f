// The shape of a launch: all that is known of its work before lengths are.
#pragma once

#include <cstdint>

#include "common/status.h"
#include "cuda/divisor.h"
#include "sm90/common/tile.h"

namespace mla::sm90 {

using cuda::Divisor;

// The most parts whose splits the attention kernel itself combines.
inline constexpr int kMaxParts = 144;

struct Shape {
  int32_t batch;
  int32_t q_len;  // of a request, at most
  int32_t num_heads;
  Divisor heads;       // num_heads
  int32_t rows;        // of a request, at most: q_len * num_heads
  int32_t cluster;     // blocks that share KV, each with a tile of rows
  int32_t groups;      // of cluster * kTileRows rows, in a request
  int32_t parts;       // runs of KV blocks, each computed by one cluster a group
  int32_t max_splits;  // of a request; 0: as many as there are parts that it lies in

  MLA_HOST_DEVICE int32_t token_of(int32_t row) const { return heads.quotient(row); }
  MLA_HOST_DEVICE int32_t head_of(int32_t row) const { return row - token_of(row) * num_heads; }

  // Of the grid.
  int64_t blocks() const { return int64_t{groups} * cluster * parts; }
  // Counts the rows of a partial result, which are whole tiles.
  int64_t padded_rows() const { return int64_t{groups} * cluster * kTileRows; }
};

// What a shape follows from.
struct Queries {
  int32_t device;
  int64_t batch;
  int64_t q_len;
  int64_t num_heads;
  int64_t max_splits;
  bool batch_invariant;
};

// Refuses shapes that the kernels do not take.
Status describe_shape(const Queries& queries, Shape* shape);

}  // namespace mla::sm90
