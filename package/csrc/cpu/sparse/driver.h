// Attends selected tokens, for sparse_decode and sparse_prefill.
#pragma once

#include "common/buffer.h"
#include "common/status.h"
#include "cpu/attention.h"

namespace mla::cpu::sparse {

struct Types {
  DType q;
  CacheFormat kv;
  CacheFormat extra_kv;
  DType out;
};

// The names that an op's arguments have in messages.
struct Names {
  const char* kv;
  const char* extra_kv;
  bool batched;  // indices [batch, q_len, topk], not [q_len, topk]
};

inline constexpr Names kDecodeNames = {"kv_cache", "extra_kv_cache", true};
inline constexpr Names kPrefillNames = {"kv", "extra_kv", false};

Status can_run(const mla_sparse_decode_problem& problem, const Types& types, const Names& names);
Status workspace_size(const mla_sparse_decode_problem& problem, const Types& types,
                      const Names& names, int64_t* bytes);
Status launch(const mla_sparse_decode_problem& problem, const Types& types, const Names& names,
              Buffer workspace);

}  // namespace mla::cpu::sparse
