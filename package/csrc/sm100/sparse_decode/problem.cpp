#include "sm100/sparse_decode/problem.h"

#include <algorithm>
#include <numeric>

#include "common/arithmetic.h"
#include "common/checks.h"
#include "mla/conversions.h"

namespace mla::sm100 {
namespace {

using Problem = mla_sparse_decode_problem;

Status check_absent(std::initializer_list<TensorData> tensors) {
  for (const TensorData& tensor : tensors) {
    if (tensor.data != nullptr) {
      return Status::error(MLA_UNSUPPORTED, tensor.name, "a tensor", "none on this arch");
    }
  }
  return {};
}

// The largest stride of which the strides of pages and tokens are multiples, so that a slot is a
// page of one token, at page * `page` + offset * `token` strides.
struct Unit {
  int64_t stride;
  int64_t page;
  int64_t token;

  bool counts_as(const Unit& other) const { return page == other.page && token == other.token; }
};

Unit unit(int64_t stride_page, int64_t stride_token, const Problem& p) {
  // The stride of a dimension of one element does not count.
  if (p.page_size <= 1) stride_token = stride_page;
  if (p.num_pages <= 1) stride_page = stride_token * p.page_size;
  const int64_t stride = std::gcd(stride_page, stride_token);
  if (stride == 0) return {kLatent, 0, 0};  // every slot is the same row
  return {stride, stride_page / stride, stride_token / stride};
}

// Sets KV as pages of one token each.
Status set_paged(const Problem& p, AttentionProblem* attention) {
  const Unit latent = unit(p.kv_latent_stride_page, p.kv_latent_stride_token, p);
  const Unit rope = unit(p.kv_rope_stride_page, p.kv_rope_stride_token, p);
  if (!latent.counts_as(rope)) {
    return Status::error(MLA_STRIDE, "kv_cache",
                         "latent and rope with strides in other proportions",
                         "the same ratio of page stride to token stride in both");
  }
  const int64_t of_pages = saturating_product({p.num_pages, latent.page});
  const int64_t of_tokens = saturating_product({p.page_size, latent.token});
  if (of_pages > kMaxInt || of_tokens > kMaxInt - of_pages) {
    return Status::error(
        MLA_STRIDE, "kv_cache",
        text(p.num_pages, " pages, ", latent.page, " units of ", latent.stride, " elements apart"),
        "fewer than 2^31 units");
  }
  RowSource& source = attention->source;
  source.page_size = static_cast<int32_t>(std::max<int64_t>(p.page_size, 1));
  source.page_units = static_cast<int32_t>(latent.page);
  source.token_units = static_cast<int32_t>(latent.token);
  attention->kv = {{p.kv_latent, p.kv_rope, latent.stride, latent.stride, rope.stride, rope.stride},
                   true,
                   of_pages + of_tokens,
                   1};
  return {};
}

}  // namespace

Status describe(const Problem& p, const Traits& traits, AttentionProblem* attention) {
  MLA_TRY(
      check_extents({{"num_pages", p.num_pages}, {"page_size", p.page_size}, {"topk", p.topk}}));
  MLA_TRY(check_absent({{"max_logits", p.max_logits, 0},
                        {"attn_sink", p.attn_sink, 0},
                        {"extra_kv_cache", p.extra_kv_latent, 0}}));
  const int64_t slots = saturating_product({p.num_pages, p.page_size});
  if (slots > kMaxInt || p.topk > kMaxInt / 2) {
    return Status::error(MLA_UNSUPPORTED, "kv_cache", text(slots, " slots, topk ", p.topk),
                         "fewer than 2^31 slots and a topk below 2^30");
  }
  *attention = {};
  attention->device = p.device;
  attention->gathers = traits.load == Load::gather;
  MLA_TRY(set_shape({p.batch, p.q_len, p.num_heads, p.max_splits, false}, traits, attention));
  set_query_and_results(p, traits, attention);
  RowSource& source = attention->source;
  source.entries = static_cast<const int32_t*>(p.indices);
  source.entries_stride_b = p.indices_stride_b;
  source.entries_stride_s = p.indices_stride_s;
  source.width = p.topk;
  source.lengths = static_cast<const int32_t*>(p.topk_length);
  source.lengths_stride_b = p.topk_length_stride_b;
  source.lengths_stride_s = p.topk_length_stride_s;
  source.capacity = p.topk;
  source.limit = slots;
  source.entry_tokens = 1;
  source.page_size = 1;
  source.page_units = 1;
  source.fill = attention->gathers;
  attention->has_tokens = slots > 0 && p.topk > 0;
  if (attention->gathers) return {};
  MLA_TRY(set_paged(p, attention));
  return check_kv(attention->kv, traits.kv);
}

namespace sparse_decode {

void set_gathered_kv(const WorkspaceLayout& layout, void* workspace, AttentionProblem* attention) {
  uint16_t* const rows =
      reinterpret_cast<uint16_t*>(static_cast<char*>(workspace) + layout.gathered);
  const int64_t stride = layout.table_stride * kHeadDim;
  attention->kv = {{rows, rows + kLatent, stride, kHeadDim, stride, kHeadDim},
                   false,
                   attention->shape.rows,
                   static_cast<int32_t>(layout.table_stride)};
}

mla_gather_kv_problem gather_problem(const Problem& p, const AttentionProblem& attention,
                                     const WorkspaceLayout& layout, void* workspace) {
  uint16_t* const rows =
      reinterpret_cast<uint16_t*>(static_cast<char*>(workspace) + layout.gathered);
  return as_gather(p, row_arrays(attention, layout, workspace).table, rows, kHeadDim,
                   rows + kLatent, kHeadDim, attention.shape.rows * layout.table_stride);
}

}  // namespace sparse_decode
}  // namespace mla::sm100
