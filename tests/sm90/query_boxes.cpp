// Checks which boxes TMA loads the queries of a dense decode by; prints what differs and exits
// with 1.
#include <algorithm>
#include <cstring>
#include <string>

#include "common/status.h"
#include "sm90/decode/problem.h"
#include "tests/sm90/tensor_map_driver.h"

namespace {

using namespace mla;
using namespace mla::sm90;
using decode::Params;

constexpr Traits kBf16 = {DType::bf16, DType::bf16, DType::bf16, Load::tma, Schedule::rows_m64};
constexpr uint64_t kCache = 1 << 20, kQ = 3 << 20;

// How queries [batch, q_len, heads] are loaded, or [1, q_len, heads] of requests with up to
// `max_q_len` tokens. A token begins `token_stride` rows after the one before.
struct Boxes {
  int64_t heads, q_len, max_q_len, token_stride;
  bool by_tma;
  uint64_t map_heads, map_tokens;
  uint32_t box_heads, box_tokens;
};

void check_boxes(const Boxes& want) {
  constexpr int64_t kBatch = 3, kRow = 576;
  const bool is_ragged = want.max_q_len > 0;
  mla_decode_problem problem = {};
  problem.batch = is_ragged ? 1 : kBatch;
  problem.num_requests = kBatch;
  problem.q_len = want.q_len;
  problem.max_q_len = want.max_q_len;
  problem.num_heads = want.heads;
  problem.softmax_scale = problem.q_scale = problem.kv_scale = problem.out_scale = 1;
  problem.page_size = problem.num_pages = problem.table_width = 64;
  problem.block_table = problem.kv_latent = address(kCache);
  problem.q_latent = address(kQ);
  problem.q_rope = address(kQ + 1024);
  problem.q_latent_stride_h = problem.q_rope_stride_h = kRow;
  problem.q_latent_stride_s = problem.q_rope_stride_s = want.token_stride * kRow;
  problem.q_latent_stride_b = problem.q_rope_stride_b = want.q_len * want.token_stride * kRow;
  Shape shape = {};
  shape.batch = kBatch;
  shape.q_len = static_cast<int32_t>(is_ragged ? want.max_q_len : want.q_len);
  shape.num_heads = static_cast<int32_t>(want.heads);
  shape.heads = Divisor(static_cast<uint32_t>(want.heads));
  shape.rows = shape.q_len * shape.num_heads;
  shape.cluster = shape.groups = shape.parts = 1;
  const std::string what = text(want.heads, " heads, ", want.q_len, " tokens, at most ",
                                want.max_q_len, " of a request, ", want.token_stride, " rows each");
  Params params = {};
  check(decode::describe(problem, kBf16, shape, nullptr, nullptr, &params).ok(), what);
  check(params.query.by_tma == want.by_tma, what + ": by TMA");
  check(decode::encode_maps(problem, kBf16, &params).ok(), what + ": refused");
  if (!want.by_tma) return;
  Request got;
  memcpy(&got, &params.query.latent_map, sizeof got);
  const uint64_t extents[] = {512, want.map_heads, want.map_tokens, is_ragged ? 1ull : kBatch};
  const uint32_t box[] = {64, want.box_heads, want.box_tokens, 1};
  check(std::equal(extents, extents + 4, got.extents), what + ": extents");
  check(std::equal(box, box + 4, got.box), what + ": box");
}

void check_all() {
  check_boxes({16, 2, 0, 16, true, 16, 2, 16, 4});     // whole tokens
  check_boxes({128, 2, 0, 130, true, 128, 2, 64, 1});  // heads of a token
  check_boxes({20, 1, 0, 20, true, 20, 1, 64, 1});
  check_boxes({96, 1, 0, 96, true, 96, 1, 64, 1});
  check_boxes({20, 3, 0, 20, true, 60, 1, 64, 1});  // tokens one after the other
  check_boxes({96, 3, 0, 96, true, 288, 1, 64, 1});
  check_boxes({20, 3, 0, 22, false, 0, 0, 0, 0});
  check_boxes({20, 7, 1, 22, true, 20, 7, 64, 1});  // requests of one token or none
  check_boxes({20, 7, 3, 20, false, 0, 0, 0, 0});
  check_boxes({32, 7, 3, 40, true, 32, 7, 32, 2});
}

}  // namespace

int main() {
  check_all();
  return failures == 0 ? 0 : 1;
}
