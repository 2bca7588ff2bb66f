// The query tokens of each request of a dense decode: as many of each, or as cu_seqlens_q says.
#pragma once

#include <cstdint>

#include "common/checks.h"

namespace mla {

inline bool is_ragged(const mla_decode_problem& p) { return p.max_q_len > 0; }

// The number of requests. Of a problem of which only a part is known, tensors of either kind tell
// it.
inline int64_t requests_of(const mla_decode_problem& p) {
  return is_ragged(p) || p.batch == 0 ? p.num_requests : p.batch;
}

// The most query tokens of a request.
inline int64_t most_query_tokens(const mla_decode_problem& p) {
  return is_ragged(p) ? p.max_q_len : p.q_len;
}

// Refuses lengths of another number of requests than a batch of queries has.
inline Status check_requests(const mla_decode_problem& p) {
  if (p.num_requests == p.batch) return {};
  return Status::error(MLA_SHAPE, p.block_table != nullptr ? "block_table" : "seq_lens",
                       text("batch = ", p.num_requests), text(p.batch, ", as q has"));
}

// Refuses tensors that do not fit the way in which queries are given. Tensors may be absent.
inline Status check_queries(const mla_decode_problem& p) {
  MLA_TRY(check_extents({{"batch", p.batch},
                         {"q_len", p.q_len},
                         {"num_requests", p.num_requests},
                         {"max_q_len", p.max_q_len}}));
  if (!is_ragged(p)) {
    if (p.cu_seqlens_q != nullptr) {
      return Status::error(MLA_RANGE, "max_q_len", "0",
                           "the most tokens of a request, because cu_seqlens_q is given");
    }
    return p.batch == 0 || p.num_requests == 0 ? Status() : check_requests(p);
  }
  if (p.batch != 1) {
    return Status::error(MLA_SHAPE, "q", text("batch = ", p.batch),
                         "1, because cu_seqlens_q says which tokens a request has");
  }
  if (p.cu_seqlens_q != nullptr && p.num_bounds != p.num_requests + 1) {
    return Status::error(MLA_SHAPE, "cu_seqlens_q", text("num_bounds = ", p.num_bounds),
                         text(p.num_requests + 1, ", one more than seq_lens has"));
  }
  return {};
}

// Refuses a launch that lacks bounds, or lengths of some requests.
inline Status check_all_queries(const mla_decode_problem& p) {
  if (!is_ragged(p)) return check_requests(p);
  if (p.cu_seqlens_q != nullptr) return {};
  return Status::error(
      MLA_DTYPE, "cu_seqlens_q", "None",
      text("an int32 tensor [num_requests + 1], because max_q_len is ", p.max_q_len));
}

}  // namespace mla
