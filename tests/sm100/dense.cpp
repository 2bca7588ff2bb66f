// The host side of dense decode, and what sparse decode shares with it, against tables worked by
// hand; prints what differs and exits with 1.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "common/status.h"
#include "sm100/cutlass_mla/split_heuristic.h"
#include "sm100/cutlass_mla/workspace.h"
#include "sm100/decode/problem.h"
#include "tests/sm100/support.h"

namespace {

using namespace mla;
using namespace mla::sm100;

// Tiles of 128 tokens into at most `most` parts, none of them empty.
static_assert(num_splits(0, 8) == 0);
static_assert(num_splits(1, 8) == 1);
static_assert(num_splits(8, 8) == 8);
static_assert(num_splits(9, 8) == 5);   // parts of 2, the last of 1; 8 parts would leave 3 empty
static_assert(num_splits(10, 4) == 4);  // 3 3 3 1
static_assert(num_splits(10, 6) == 5);  // 2 2 2 2 2; 6 parts would leave one empty
static_assert(num_splits(64, 9) == 8);  // parts of 8; 9 parts would leave one empty
static_assert(num_splits(300, 256) == 150);
static_assert(num_splits(7, 1) == 1);
static_assert(tile_count(0) == 0 && tile_count(1) == 1 && tile_count(128) == 1);
static_assert(tile_count(129) == 2);

// 148 multiprocessors are 74 clusters.
static_assert(num_splits_heuristic(1, 148) == 74);
static_assert(num_splits_heuristic(2, 148) == 37);
static_assert(num_splits_heuristic(16, 148) == 4);
static_assert(num_splits_heuristic(37, 148) == 2);
static_assert(num_splits_heuristic(38, 148) == 1);
static_assert(num_splits_heuristic(74, 148) == 1);
static_assert(num_splits_heuristic(1000, 148) == 1);
static_assert(num_splits_heuristic(1, 1024) == 256);

const Traits kTma = {DType::bf16, DType::bf16, DType::bf16, Load::tma, Schedule::individual};
const Traits kTmaPersistent = {DType::bf16, DType::bf16, DType::bf16, Load::tma,
                               Schedule::persistent};
const Traits kCpasync = {DType::bf16, DType::bf16, DType::bf16, Load::cpasync,
                         Schedule::individual};
const Traits kQuantised = {DType::e4m3, DType::e4m3, DType::bf16, Load::tma, Schedule::individual};
const Traits kNoRope = {DType::bf16,          DType::bf16, DType::bf16, Load::tma,
                        Schedule::individual, 512,         512};
const Traits kShort = {DType::bf16,          DType::bf16, DType::bf16, Load::tma,
                       Schedule::individual, 320,         256};

// 16 requests of one token, 128 heads, a table of 32 pages of 128 tokens each.
mla_decode_problem decode_problem() {
  mla_decode_problem p = {};
  p.op = MLA_OP_DECODE;
  p.q_latent = at(0x1000);
  p.q_rope = at(0x1400);
  p.q_latent_stride_b = p.q_latent_stride_s = p.q_rope_stride_b = p.q_rope_stride_s = 128 * 576;
  p.q_latent_stride_h = p.q_rope_stride_h = 576;
  p.kv_latent = at(0x100000);
  p.kv_rope = at(0x100400);
  p.kv_latent_stride_page = p.kv_rope_stride_page = 128 * 576;
  p.kv_latent_stride_token = p.kv_rope_stride_token = 576;
  p.block_table = at(0x200000);
  p.block_table_stride_b = 32;
  p.seq_lens = at(0x300000);
  p.out = at(0x400000);
  p.out_stride_b = p.out_stride_s = 128 * 512;
  p.out_stride_h = 512;
  p.lse = at(0x500000);
  p.lse_stride_b = 128;
  p.lse_stride_h = p.lse_stride_s = 1;
  p.batch = 16;
  p.q_len = 1;
  p.num_heads = 128;
  p.num_pages = 600;
  p.page_size = 128;
  p.table_width = 32;
  p.softmax_scale = 0.1f;
  p.q_scale = p.kv_scale = p.out_scale = 1;
  p.causal = 1;
  return p;
}

template <class Change>
void refuses(const Traits& traits, const char* argument, const char* says, const Change& change) {
  mla_decode_problem p = decode_problem();
  change(p);
  AttentionProblem attention;
  const Status status = describe_all(p, traits, &attention);
  const std::string message = status.ok() ? "accepted" : last_error();
  check(!status.ok() && message.rfind(std::string(argument) + "\n", 0) == 0 &&
            message.find(says) != std::string::npos,
        std::string("refusal of ") + argument + " saying '" + says + "'; got: " + message);
}

template <class Change>
AttentionProblem accepts(const Traits& traits, const Change& change) {
  mla_decode_problem p = decode_problem();
  change(p);
  AttentionProblem attention = {};
  const Status status = describe_all(p, traits, &attention);
  check(status.ok(), std::string("accepted problem; got: ") + (status.ok() ? "" : last_error()));
  return attention;
}

template <class Change>
void needs(const Traits& traits, int64_t bytes, const Change& change) {
  const AttentionProblem attention = accepts(traits, change);
  WorkspaceLayout layout = {};
  check(lay_out(attention, &layout).ok(), "layout");
  check(layout.bytes == bytes,
        "workspace of " + std::to_string(bytes) + " bytes; got " + std::to_string(layout.bytes));
}

using Problem = mla_decode_problem;

void test_refusals() {
  refuses(kTma, "num_heads", "1 to 256", [](Problem& p) { p.num_heads = 257; });
  refuses(kTma, "num_heads", "1 to 256", [](Problem& p) { p.num_heads = 0; });
  refuses(kTma, "num_heads", "1 to 128 for contiguous", [](Problem& p) {
    p.num_heads = 129;
    p.block_table = nullptr;
  });
  refuses(kTma, "batch", "0 or more", [](Problem& p) { p.batch = -1; });
  refuses(kTma, "page_size", "load cpasync", [](Problem& p) { p.page_size = 64; });
  refuses(kCpasync, "page_size", "powers of two up to 128", [](Problem& p) { p.page_size = 48; });
  refuses(kCpasync, "page_size", "powers of two up to 128", [](Problem& p) { p.page_size = 256; });
  refuses(kCpasync, "page_size", "powers of two up to 128", [](Problem& p) { p.page_size = 0; });
  refuses(kCpasync, "block_table", "load tma", [](Problem& p) { p.block_table = nullptr; });
  refuses(kTma, "q_len", "1 for contiguous", [](Problem& p) {
    p.block_table = nullptr;
    p.q_len = 2;
  });
  refuses(kTma, "kv_cache", "a row for each", [](Problem& p) {
    p.block_table = nullptr;
    p.num_pages = 15;
  });
  refuses(kTma, "batch", "fewer than 32768", [](Problem& p) { p.batch = 32768; });
  refuses(kTma, "batch", "fewer than 32768", [](Problem& p) {
    p.batch = 16384;
    p.num_heads = 129;
  });
  refuses(kTma, "batch", "32 bits", [](Problem& p) {
    p.batch = 4096;
    p.max_splits = 8;
  });
  refuses(kTma, "max_splits", "0 to 256", [](Problem& p) { p.max_splits = 257; });
  refuses(kTmaPersistent, "max_splits", "not safe", [](Problem& p) { p.max_splits = 2; });
  refuses(kTma, "softmax_scale", "positive", [](Problem& p) { p.softmax_scale = 0; });
  refuses(kTma, "softmax_scale", "positive", [](Problem& p) { p.softmax_scale = -1; });
  refuses(kTma, "softmax_scale", "finite", [](Problem& p) { p.softmax_scale = NAN; });
  refuses(kTma, "kv_scale", "not e4m3", [](Problem& p) { p.kv_scale = 2; });
  refuses(kTma, "q_scale", "not e4m3", [](Problem& p) { p.q_scale = 2; });
  refuses(kTma, "kv_cache", "multiples of 16", [](Problem& p) { p.kv_latent = at(0x100008); });
  refuses(kTma, "kv_cache", "multiples of 16", [](Problem& p) { p.kv_latent_stride_token = 577; });
  refuses(kTma, "kv_cache", "below 2^40",
          [](Problem& p) { p.kv_rope_stride_page = int64_t{1} << 40; });
  refuses(kTma, "kv_cache", "below 2^40", [](Problem& p) { p.kv_rope_stride_page = INT64_MAX; });
  refuses(kTma, "kv_cache", "multiples of 16", [](Problem& p) { p.kv_rope_stride_page = -1024; });
}

void test_splits() {
  const auto most = [](const Traits& traits, int64_t batch, int64_t max_splits, bool invariant) {
    return accepts(traits,
                   [&](Problem& p) {
                     p.batch = batch;
                     p.max_splits = max_splits;
                     p.batch_invariant = invariant;
                   })
        .shape.max_splits;
  };
  const AttentionProblem tiles = accepts(kTma, [](Problem& p) { p.num_heads = 129; });
  check(tiles.shape.rows == 32 && tiles.shape.max_splits == 2,
        "16 tokens of 129 heads are 32 rows");
  check(most(kTma, 1, 0, false) == 74, "one row takes every cluster");
  check(most(kTma, 16, 0, false) == 4, "16 rows take 4 clusters each");
  check(most(kTma, 100, 0, false) == 1, "100 rows take one each");
  check(most(kTma, 16, 7, false) == 7, "what the caller says");
  check(most(kTma, 1, 0, true) == 8 && most(kTma, 1000, 0, true) == 8, "batch-invariant");
  check(most(kTmaPersistent, 1, 0, false) == 1, "persistent never splits");
}

void test_workspace() {
  // rows: 5 arrays of 16 int32, in 512; table 16 * 32 * 4 = 2048; LSE 16 * 128 * 4 = 8192.
  constexpr int64_t kFixed = 512 + 2048 + 8192;
  constexpr int64_t kPartial = 16 * 128 * 513 * 4;  // of one split
  needs(kTma, kFixed, [](Problem& p) { p.max_splits = 1; });
  needs(kTma, kFixed + 4 * kPartial, [](Problem&) {});
  needs(kTma, kFixed + 256 * kPartial, [](Problem& p) { p.max_splits = 256; });
  // Fewer heads: packed Q of 16 * 128 * 576 * 2 bytes, O of 16 * 128 * 512 * 2.
  needs(kTma, kFixed + 2359296 + 2097152, [](Problem& p) {
    p.max_splits = 1;
    p.num_heads = 16;
  });
  // Q that cannot be read in place.
  needs(kTma, kFixed + 2359296, [](Problem& p) {
    p.max_splits = 1;
    p.q_latent_stride_h = 577;
  });
  // Q expanded over the batch is packed; one request has no stride.
  needs(kTma, kFixed + 2359296, [](Problem& p) {
    p.max_splits = 1;
    p.q_latent_stride_b = p.q_rope_stride_b = 0;
  });
  needs(kTma, 256 + 256 + 512, [](Problem& p) {
    p.batch = p.max_splits = 1;
    p.q_latent_stride_b = p.q_rope_stride_b = 0;
  });
  // 129 heads are two tiles, which have rows of their own: twice of all but the padding.
  needs(kTma, 768 + 2 * (2048 + 8192 + 2359296 + 2097152), [](Problem& p) {
    p.max_splits = 1;
    p.num_heads = 129;
  });
  // e4m3 packs half the bytes.
  needs(kQuantised, kFixed + 1179648 + 2097152, [](Problem& p) {
    p.max_splits = 1;
    p.num_heads = 16;
  });
  // 30 pages of 16 tokens are 480 tokens, 4 tiles, so 32 entries a row.
  needs(kCpasync, kFixed, [](Problem& p) {
    p.max_splits = 1;
    p.page_size = 16;
    p.table_width = 30;
  });
  // Contiguous KV has no table.
  needs(kTma, 512 + 8192, [](Problem& p) {
    p.max_splits = 1;
    p.block_table = nullptr;
  });
  // O that the kernel cannot write where it belongs: strided, unaligned, or not yet there.
  constexpr int64_t kOut = 2097152;
  for (const auto& change : std::vector<void (*)(Problem&)>{
           [](Problem& p) { p.out_stride_h = 528; }, [](Problem& p) { p.out_stride_b = 129 * 512; },
           [](Problem& p) { p.out = at(0x400008); }, [](Problem& p) { p.out = nullptr; }}) {
    needs(kTma, kFixed + kOut, [&](Problem& p) {
      p.max_splits = 1;
      change(p);
    });
  }
  // Rows of 512 columns: Q is packed, with zeros behind it, into as many columns as rows of 576.
  needs(kNoRope, kFixed + 2359296, [](Problem& p) { p.max_splits = 1; });
  // Rows of 320 columns: Q in place; partial results of 256 columns.
  constexpr int64_t kShortPartial = 16 * 128 * 257 * 4;
  needs(kShort, kFixed + 2 * kShortPartial, [](Problem& p) {
    p.max_splits = 2;
    p.out_stride_b = p.out_stride_s = 128 * 256;
    p.out_stride_h = 256;
  });
}

void test_widths() {
  const AttentionProblem usual = accepts(kTma, [](Problem&) {});
  check(usual.kv.rope == at(0x100400) && reads_query_in_place(usual), "576 columns as they are");
  const AttentionProblem bare =
      accepts(kNoRope, [](Problem& p) { p.kv_rope = p.q_rope = nullptr; });
  check(bare.kv.rope == bare.kv.latent && bare.kv.rope_stride_page == bare.kv.latent_stride_page &&
            bare.kv.rope_stride_token == bare.kv.latent_stride_token,
        "keys without a rope part give their first columns");
  check(!reads_query_in_place(bare) && bare.query.latent_bytes == 1024 &&
            bare.query.rope_bytes == 0 && bare.query.row_bytes == 1152,
        "queries without a rope part are packed with zeros behind them");
  const AttentionProblem narrow = accepts(kShort, [](Problem&) {});
  check(reads_query_in_place(narrow) && narrow.query.row_bytes == 640 && narrow.shape.d_v == 256,
        "320 columns as they are");
}

void test_scales() {
  const AttentionProblem attention = accepts(kQuantised, [](Problem& p) {
    p.softmax_scale = 0.5f;
    p.q_scale = 0.25f;
    p.kv_scale = 2;
    p.out_scale = 3;
  });
  check(attention.softmax_scale == 0.25f, "Q and KV scales fold into the softmax scale");
  check(attention.out_scale == 6, "the KV scale folds into the output scale");
}

}  // namespace

int main() {
  test_refusals();
  test_splits();
  test_workspace();
  test_widths();
  test_scales();
  return failures == 0 ? 0 : 1;
}
