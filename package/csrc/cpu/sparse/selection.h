#pragma once

#include <cstdint>

#include "common/status.h"
#include "cpu/isa/attend.h"

namespace mla::cpu::sparse {

// The tokens that query tokens select from one cache by indices [batch, q_len, topk].
struct Selection {
  const CacheFormat* format;
  const char* indices_name;
  const char* length_name;
  const int32_t* indices;
  int64_t stride_b;
  int64_t stride_s;
  int64_t topk;
  const int32_t* length;  // [batch, q_len]; null: topk
  int64_t length_stride_b;
  int64_t length_stride_s;
  int64_t slots;    // in the cache
  KvTokens tokens;  // without slots

  const int32_t* at(int64_t b, int64_t s) const { return indices + b * stride_b + s * stride_s; }

  int64_t length_at(int64_t b, int64_t s) const {
    return length == nullptr ? topk : length[b * length_stride_b + s * length_stride_s];
  }

  // Refuses lengths beyond topk, and indices within a length that no cache row has.
  Status check(int64_t batch, int64_t q_len, bool batched) const;
};

}  // namespace mla::cpu::sparse
