// The plan of a step of dense decode: which KV blocks each part computes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "common/status.h"
#include "sm90/scheduler/shape.h"

namespace mla::sm90 {

// Where a part begins.
struct Boundary {
  int32_t request;
  int32_t block;    // of the request's KV
  int32_t split;    // of the request
  int32_t in_pair;  // the request is split in two, and neither split shares its part
};

// A plan's buffer holds these arrays.
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
  // The number of a request's partial results; 0 if it is not split.
  MLA_HOST_DEVICE int32_t partials_of(int request) const {
    return first_partial[request + 1] - first_partial[request];
  }

  static int64_t bytes(const Shape& shape) {
    const int64_t batch = shape.batch;
    return (batch + 2) / 2 * 2 * sizeof(int64_t) + (shape.parts + 1) * sizeof(Boundary) +
           (2 * batch + 1) * sizeof(int32_t);
  }
};

// Fills a plan's buffer from the lengths of [batch] requests.
Status make_plan(const Shape& shape, const int32_t* lengths, void* buffer, cudaStream_t stream);
Status prepare_plan(int32_t device);

}  // namespace mla::sm90
