#include "cpu/to_global_indices/to_global_indices.h"

#include <algorithm>
#include <cstdint>

#include "common/arithmetic.h"
#include "common/checks.h"

namespace mla::cpu {
namespace {

using Problem = mla_to_global_indices_problem;

constexpr int32_t kAbsent = -1;
constexpr int64_t kItemIndices = 8192;

const int32_t* req_id(const Problem& p) { return static_cast<const int32_t*>(p.req_id); }

Status check_values(const Problem& p) {
  const int64_t indices = saturating_product({p.num_tokens, p.topk});
  MLA_TRY(check_present(
      {{"req_id", p.req_id, p.num_tokens},
       {"block_table", p.block_table, saturating_product({p.num_requests, p.table_width})},
       {"token_indices", p.token_indices, indices},
       {"out", p.out, indices}}));
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    if (req_id(p)[t] < 0 || req_id(p)[t] >= p.num_requests) {
      return Status::error(MLA_RANGE, text("req_id[", t, "]"), text(req_id(p)[t]),
                           p.num_requests > 0 ? text("0 to ", p.num_requests - 1)
                                              : text("no request, because block_table has none"));
    }
  }
  return {};
}

// `page_size` is int32, because dividing 32 bits is several times faster than dividing 64.
void convert(const int32_t* pages, int64_t table_width, uint32_t page_size, const int32_t* tokens,
             int32_t* slots, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t token = static_cast<uint32_t>(tokens[i]);
    const uint32_t entry = token / page_size;
    int64_t slot = kAbsent;
    if (tokens[i] >= 0 && entry < table_width && pages[entry] >= 0) {
      slot = int64_t{pages[entry]} * page_size + token % page_size;
    }
    // No attention op could use a slot that an index cannot hold.
    slots[i] = slot <= kMaxInt ? static_cast<int32_t>(slot) : kAbsent;
  }
}

void convert_token(const Problem& p, int64_t t) {
  const int64_t largest = kMaxInt + 1;
  convert(static_cast<const int32_t*>(p.block_table) + req_id(p)[t] * p.block_table_stride_b,
          p.table_width, static_cast<uint32_t>(std::min(p.page_size, largest)),
          static_cast<const int32_t*>(p.token_indices) + t * p.token_indices_stride_t,
          static_cast<int32_t*>(p.out) + t * p.out_stride_t, p.topk);
}

}  // namespace

Status ToGlobalIndices::can_run(const Problem& p) {
  MLA_TRY(check_environment());
  MLA_TRY(check_extents({{"num_tokens", p.num_tokens},
                         {"num_requests", p.num_requests},
                         {"table_width", p.table_width},
                         {"topk", p.topk}}));
  if (p.page_size < 1) {
    return Status::error(MLA_RANGE, "page_size", text(p.page_size), "1 or more");
  }
  return {};
}

Status ToGlobalIndices::launch(const Problem& p, ConstBuffer, Buffer, Stream) {
  MLA_TRY(can_run(p));
  MLA_TRY(check_values(p));
  if (p.topk == 0) return {};
  const int64_t item_tokens = std::max<int64_t>(1, kItemIndices / p.topk);
  const int64_t items = ceil_div(p.num_tokens, item_tokens);
  const int64_t nanoseconds = p.num_tokens * p.topk * 2;
  return parallel(items, nanoseconds, [&](int64_t i, const Scratch&) {
    const int64_t end = std::min(p.num_tokens, (i + 1) * item_tokens);
    for (int64_t t = i * item_tokens; t < end; ++t) convert_token(p, t);
  });
}

}  // namespace mla::cpu
