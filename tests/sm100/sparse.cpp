// The host side of sparse decode against tables worked by hand; prints what differs and exits
// with 1.
#include <string>

#include "common/status.h"
#include "sm100/sparse_decode/problem.h"
#include "tests/sm100/support.h"

namespace {

using namespace mla;
using namespace mla::sm100;

const Traits kCpasync = {DType::bf16, DType::bf16, DType::bf16, Load::cpasync,
                         Schedule::individual};
const Traits kV4 = {
    DType::bf16, DType::fp8_ds_v4, DType::bf16, Load::gather, Schedule::individual, 512, 512};

void test_sparse() {
  mla_sparse_decode_problem p = {};
  p.op = MLA_OP_SPARSE_DECODE;
  p.kv_latent = at(0x100000);
  p.kv_rope = at(0x100400);
  p.kv_latent_stride_page = p.kv_rope_stride_page = 70 * 576;  // pages of 64 with a gap
  p.kv_latent_stride_token = p.kv_rope_stride_token = 576;
  p.indices = at(0x200000);
  p.batch = 3;
  p.q_len = 2;
  p.num_heads = 16;
  p.num_pages = 9;
  p.page_size = 64;
  p.topk = 100;
  p.softmax_scale = p.q_scale = p.kv_scale = p.out_scale = 1;
  AttentionProblem attention;
  check(describe_all(p, kCpasync, &attention).ok(), "a strided pool");
  check(attention.source.page_units == 70 && attention.source.token_units == 1 &&
            attention.kv.latent_stride_page == 576,
        "slots count in rows of the pool, gaps included");
  WorkspaceLayout layout;
  check(lay_out(attention, &layout).ok() && layout.table_stride == 128, "a table of whole tiles");
  p.kv_rope_stride_page = 64 * 576;
  check(!describe_all(p, kCpasync, &attention).ok(), "other proportions");
  p.kv_latent_stride_page = p.kv_rope_stride_page = int64_t{1} << 38;
  check(!describe_all(p, kCpasync, &attention).ok(), "more units than 31 bits hold");
  p.kv_latent_stride_page = p.kv_rope_stride_page = 70 * 576;
  p.attn_sink = at(0x1000);
  p.num_heads = 128;
  p.out = at(0x400000);
  p.out_stride_b = 2 * 128 * 512;
  p.out_stride_s = 128 * 512;
  p.out_stride_h = 512;
  check(describe_all(p, kCpasync, &attention).ok() && !writes_out_in_place(attention),
        "a sink scales outputs that are copied");
  p.attn_sink = nullptr;
  check(describe_all(p, kCpasync, &attention).ok() && writes_out_in_place(attention),
        "without one they lie where they belong");
  p.out_stride_b = 128 * 512;
  check(describe_all(p, kCpasync, &attention).ok() && !writes_out_in_place(attention),
        "rows of 2 tokens that lie one batch apart");
  p.extra_kv_latent = at(0x600000);
  check(!describe_all(p, kCpasync, &attention).ok(), "an extra cache that would not be gathered");
}

// Two caches of DeepSeek V4: pages of 64 rows of 576 bytes, then 64 scales of 8 bytes.
void test_two_caches() {
  mla_sparse_decode_problem p = {};
  p.op = MLA_OP_SPARSE_DECODE;
  p.q_latent = at(0x1000);
  p.q_rope = at(0x1000 + 448 * 2);
  p.kv_latent = at(0x100000);
  p.kv_latent_stride_page = 37440;
  p.kv_latent_stride_token = 584;
  p.indices = at(0x200000);
  p.extra_kv_latent = at(0x600000);
  p.extra_kv_latent_stride_page = 2304;
  p.extra_kv_latent_stride_token = 584;
  p.extra_indices = at(0x700000);
  p.batch = 3;
  p.q_len = 2;
  p.num_heads = 64;
  p.num_pages = 9;
  p.page_size = 64;
  p.topk = 128;
  p.extra_num_pages = 5;
  p.extra_page_size = 3;
  p.extra_topk = 40;
  p.softmax_scale = p.q_scale = p.kv_scale = p.out_scale = 1;
  AttentionProblem attention;
  check(describe_all(p, kV4, &attention).ok(), "two caches");
  check(attention.source.main.limit == 576 && attention.source.extra.limit == 15 &&
            attention.source.capacity() == 168,
        "slots of both");
  check(attention.query.latent_bytes == 896 && attention.query.rope_bytes == 128 &&
            attention.query.row_bytes == 1152,
        "queries of two parts, and zeros");
  WorkspaceLayout layout;
  check(lay_out(attention, &layout).ok() && layout.table_stride == 256 &&
            layout.partial - layout.gathered == 6 * 256 * 512 * 2,
        "rows of 512 columns for both");
  sparse_decode::set_gathered_kv(layout, at(0x1000000), &attention);
  check(attention.kv.rope == attention.kv.latent && attention.kv.latent_stride_token == 512 &&
            attention.kv.latent_stride_page == 256 * 512 && !attention.kv.paged,
        "gathered rows as the kernel reads them");
  p.kv_latent = p.extra_kv_latent = nullptr;
  check(describe_all(p, kV4, &attention).ok(), "a shape of which only the workspace is sized");
  p.extra_kv_latent = at(0x600000);
  p.extra_kv_latent_stride_page = 2303;
  check(!describe_all(p, kV4, &attention).ok() &&
            std::string(last_error()).rfind("extra_kv_cache\n", 0) == 0,
        "pages of the extra cache that are not padded");
  p.extra_kv_latent = nullptr;
  check(!sparse_decode::check_extra(p).ok(), "an extra cache without memory");
}

}  // namespace

int main() {
  test_sparse();
  test_two_caches();
  return failures == 0 ? 0 : 1;
}
