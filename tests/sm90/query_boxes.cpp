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
constexpr Traits kSwapAb = {DType::bf16, DType::bf16, DType::bf16, Load::tma, Schedule::swap_ab};
constexpr uint64_t kCache = 1 << 20, kQ = 3 << 20;

constexpr int64_t kBatch = 3, kRow = 576;

// Queries [kBatch, q_len, heads], or [1, q_len, heads] of kBatch requests with up to `max_q_len`
// tokens each. A token begins `token_rows` rows after the one before.
struct Queries {
  int64_t heads;
  int64_t q_len;
  int64_t max_q_len = 0;        // 0: all requests have q_len tokens
  int64_t token_rows = 0;       // 0: as many as it has heads
  int64_t rope_token_rows = 0;  // 0: as the latent part
  uint64_t address = kQ;
};

// The extents of a map and of its boxes.
struct Map {
  uint64_t heads, tokens;
  uint32_t box_heads, box_tokens;
};

struct Loaded {
  std::string what;
  mla_decode_problem problem = {};
  Params params = {};
};

Loaded load(const Queries& q, const Traits& traits) {
  Loaded loaded;
  const bool is_ragged = q.max_q_len > 0;
  const int64_t latent_rows = q.token_rows > 0 ? q.token_rows : q.heads;
  const int64_t rope_rows = q.rope_token_rows > 0 ? q.rope_token_rows : latent_rows;
  loaded.what = text(q.heads, " heads, ", q.q_len, " tokens, at most ", q.max_q_len,
                     " of a request, ", latent_rows, " and ", rope_rows, " rows each");
  mla_decode_problem& problem = loaded.problem;
  problem.batch = is_ragged ? 1 : kBatch;
  problem.num_requests = kBatch;
  problem.q_len = q.q_len;
  problem.max_q_len = q.max_q_len;
  problem.num_heads = q.heads;
  problem.softmax_scale = problem.q_scale = problem.kv_scale = problem.out_scale = 1;
  problem.page_size = problem.num_pages = problem.table_width = 64;
  problem.block_table = problem.kv_latent = address(kCache);
  problem.q_latent = address(q.address);
  problem.q_rope = address(q.address + 1024);
  problem.q_latent_stride_h = problem.q_rope_stride_h = kRow;
  problem.q_latent_stride_s = latent_rows * kRow;
  problem.q_rope_stride_s = rope_rows * kRow;
  problem.q_latent_stride_b = q.q_len * problem.q_latent_stride_s;
  problem.q_rope_stride_b = q.q_len * problem.q_rope_stride_s;
  Shape shape = {};
  shape.batch = kBatch;
  shape.q_len = static_cast<int32_t>(is_ragged ? q.max_q_len : q.q_len);
  shape.num_heads = static_cast<int32_t>(q.heads);
  shape.heads = Divisor(static_cast<uint32_t>(q.heads));
  shape.rows = shape.q_len * shape.num_heads;
  shape.cluster = shape.groups = shape.parts = 1;
  const bool described =
      decode::describe(problem, traits, shape, nullptr, nullptr, &loaded.params).ok();
  check(described && decode::encode_maps(problem, traits, &loaded.params).ok(),
        loaded.what + ": refused");
  return loaded;
}

void check_copied(const Queries& q, const Traits& traits = kBf16) {
  const Loaded loaded = load(q, traits);
  check(!loaded.params.query.by_tma, loaded.what + ": by TMA");
}

void check_map(const CUtensorMap& map, uint64_t columns, int64_t batch, int64_t token_rows,
               const Map& want, const std::string& what) {
  AskedMap got;
  memcpy(&got, &map, sizeof got);
  const uint64_t extents[] = {columns, want.heads, want.tokens, static_cast<uint64_t>(batch)};
  const uint32_t box[] = {64, want.box_heads, want.box_tokens, 1};
  check(std::equal(extents, extents + 4, got.extents), what + ": extents");
  check(std::equal(box, box + 4, got.box), what + ": box");
  check(got.strides[0] == kRow * 2, what + ": stride of heads");
  const bool has_tokens = want.tokens > 1;
  check(!has_tokens || got.strides[1] == static_cast<uint64_t>(token_rows * kRow * 2),
        what + ": stride of tokens");
}

void check_boxes(const Queries& q, const Map& want) {
  const Loaded loaded = load(q, kBf16);
  const auto& query = loaded.params.query;
  check(query.by_tma, loaded.what + ": by TMA");
  const int64_t rows = q.token_rows > 0 ? q.token_rows : q.heads;
  const int64_t rope_rows = q.rope_token_rows > 0 ? q.rope_token_rows : rows;
  check_map(query.latent_map, 512, loaded.problem.batch, rows, want, loaded.what + ": latent");
  check_map(query.rope_map, 64, loaded.problem.batch, rope_rows, want, loaded.what + ": rope");
}

void check_whole_tokens() {
  check_boxes({.heads = 16, .q_len = 2}, {16, 2, 16, 4});
  check_boxes({.heads = 16, .q_len = 2, .token_rows = 18, .rope_token_rows = 16}, {16, 2, 16, 4});
  check_boxes({.heads = 32, .q_len = 7, .max_q_len = 3, .token_rows = 40}, {32, 7, 32, 2});
}

void check_heads_of_one_token() {
  check_boxes({.heads = 128, .q_len = 2, .token_rows = 130}, {128, 2, 64, 1});
  check_boxes({.heads = 20, .q_len = 1}, {20, 1, 64, 1});
  check_boxes({.heads = 96, .q_len = 1}, {96, 1, 64, 1});
  check_boxes({.heads = 20, .q_len = 7, .max_q_len = 1, .token_rows = 22}, {20, 7, 64, 1});
}

void check_flattened_tokens() {
  check_boxes({.heads = 20, .q_len = 3}, {60, 1, 64, 1});
  check_boxes({.heads = 96, .q_len = 3}, {288, 1, 64, 1});
}

void check_what_a_warp_copies() {
  check_copied({.heads = 20, .q_len = 3, .token_rows = 22});
  check_copied({.heads = 20, .q_len = 3, .rope_token_rows = 22});
  check_copied({.heads = 20, .q_len = 7, .max_q_len = 3});
  check_copied({.heads = 128, .q_len = 1, .address = kQ + 2});
  check_copied({.heads = 16, .q_len = 1}, kSwapAb);
}

}  // namespace

int main() {
  check_whole_tokens();
  check_heads_of_one_token();
  check_flattened_tokens();
  check_what_a_warp_copies();
  return failures == 0 ? 0 : 1;
}
