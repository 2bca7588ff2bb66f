#include "cpu/decode/decode.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/arithmetic.h"
#include "common/queries.h"
#include "cpu/decode/checks.h"
#include "cpu/decode/plan.h"
#include "cpu/pool.h"

namespace mla::cpu::decode {
namespace {

PlanShape plan_shape(const Problem& p) {
  const int64_t rows = most_query_tokens(p) * p.num_heads;
  return {requests_of(p), rows, ceil_div(rows, kMaxRows), p.max_splits, p.batch_invariant != 0};
}

class Launch {
 public:
  Launch(const Problem& p, const AttentionTypes& types, const Plan& plan, void* workspace)
      : p_(p),
        shape_(plan_shape(p)),
        plan_(plan),
        isa_(active_isa()),
        types_(types),
        q_latent_(row_tensor(p.q_latent, element_bytes(types.q), p.q_latent_stride_b,
                             p.q_latent_stride_s, p.q_latent_stride_h)),
        q_rope_(types.kv.rope == 0 ? q_latent_
                                   : row_tensor(p.q_rope, element_bytes(types.q), p.q_rope_stride_b,
                                                p.q_rope_stride_s, p.q_rope_stride_h)),
        outputs_{types.out,
                 types.kv.d_v,
                 row_tensor(p.out, element_bytes(types.out), p.out_stride_b, p.out_stride_s,
                            p.out_stride_h),
                 row_tensor(p.lse, sizeof(float), p.lse_stride_b, p.lse_stride_s, p.lse_stride_h),
                 {}},
        partials_(workspace, plan.header->slots, shape_.rows, types.kv.d_v),
        tokens_(pool_tokens(types.kv, pool_view(p))) {}

  Status run() const {
    MLA_TRY(parallel(plan_.header->items, nanoseconds(),
                     [this](int64_t i, const Scratch& scratch) { attend(i, scratch); }));
    const int64_t blocks = ceil_div(shape_.rows, kCombineRows);
    const int64_t row_states = plan_.header->slots * shape_.rows;
    return parallel(plan_.header->split_requests * blocks, row_states * types_.kv.d_v / 8,
                    [this, blocks](int64_t i, const Scratch& scratch) {
                      combine(plan_.entries[i / blocks], i % blocks * kCombineRows, scratch);
                    });
  }

 private:
  // Rows [first, first + rows) of a request attend tokens [begin, end). A request of few query
  // tokens has items without rows.
  struct Item {
    const PlanEntry& entry;
    QueryTokens query;
    int64_t first;
    int rows;
    int64_t split;
    int64_t begin;
    int64_t end;
  };

  int64_t nanoseconds() const {
    int64_t tokens = 0;
    for (int64_t b = 0; b < requests_of(p_); ++b) tokens += seq_lens(p_)[b];
    return attend_nanoseconds(types_.kv, saturating_product({tokens, shape_.rows}));
  }

  Item item(int64_t index) const {
    const PlanEntry* after = std::upper_bound(
        plan_.entries, plan_.entries + requests_of(p_), index,
        [](int64_t value, const PlanEntry& entry) { return value < entry.first_item; });
    const PlanEntry& entry = after[-1];
    const int64_t within = index - entry.first_item;
    const int64_t split = within / shape_.row_blocks;
    const int64_t first = within % shape_.row_blocks * kMaxRows;
    const QueryTokens query = query_tokens(p_, entry.request);
    const int64_t all = query.count * p_.num_heads;
    const int64_t rows = std::clamp<int64_t>(all - first, 0, kMaxRows);
    int64_t visible = 0;
    for (int64_t row = first; row < first + rows; ++row) {
      visible = std::max(visible, row_limit(entry, query, row));
    }
    const bool last = split == entry.splits - 1;
    return {entry,
            query,
            first,
            static_cast<int>(rows),
            split,
            split * entry.chunk,
            last ? visible : std::min<int64_t>(visible, (split + 1) * entry.chunk)};
  }

  // Returns the tokens that a row sees.
  int64_t row_limit(const PlanEntry& entry, const QueryTokens& query, int64_t row) const {
    const int64_t length = seq_lens(p_)[entry.request];
    if (p_.token_seq_lens != nullptr) {
      const int64_t s = query.begin + row / p_.num_heads;
      return token_seq_lens(p_, query.batch)[s * p_.token_seq_lens_stride_s];
    }
    return p_.causal != 0 ? length - query.count + 1 + row / p_.num_heads : length;
  }

  void attend(int64_t index, const Scratch& scratch) const {
    const Item item = this->item(index);
    if (item.rows == 0) return;
    const bool split = item.entry.splits > 1;
    float single_lse[kMaxRows];
    float* const lse =
        split ? partials_.lse(item.entry.first_slot + item.split, item.first) : single_lse;
    if (item.begin < item.end) {
      AttendItem work;
      work.o = split ? partials_.o(item.entry.first_slot + item.split, item.first) : scratch.rows;
      work.lse = lse;
      attend_rows(item, work, scratch);
    } else {
      std::fill_n(lse, item.rows, -std::numeric_limits<float>::infinity());
      if (!split) std::fill_n(scratch.rows, item.rows * types_.kv.d_v, 0.0f);
    }
    if (split) return;
    for (int r = 0; r < item.rows; ++r) {
      write(item.query, item.first + r, {scratch.rows + r * types_.kv.d_v, lse[r]});
    }
  }

  void attend_rows(const Item& item, AttendItem& work, const Scratch& scratch) const {
    QueryRows query;
    int64_t limits[kMaxRows];
    const int64_t b = item.query.batch;
    for (int r = 0; r < item.rows; ++r) {
      const int64_t s = item.query.begin + (item.first + r) / p_.num_heads;
      const int64_t h = (item.first + r) % p_.num_heads;
      query.latent[r] = q_latent_.at(b, s, h);
      query.rope[r] = q_rope_.at(b, s, h);
      limits[r] = row_limit(item.entry, item.query, item.first + r);
    }
    work.q_dtype = types_.q;
    work.compute = types_.compute;
    work.format = &types_.kv;
    work.rows = item.rows;
    work.o_stride = types_.kv.d_v;
    work.q_latent = query.latent;
    work.q_rope = query.rope;
    work.kv = tokens_;
    work.kv.fixed_page = item.entry.request;
    if (p_.block_table != nullptr) work.kv.page_table = table_row(p_, item.entry.request);
    work.begin = item.begin;
    work.end = item.end;
    const int64_t least = *std::min_element(limits, limits + item.rows);
    work.row_limit = least < item.end ? limits : nullptr;
    work.scratch = scratch.isa;
    set_scales(scales(p_), work);
    isa_.attend(work);
  }

  void combine(const PlanEntry& entry, int64_t first, const Scratch& scratch) const {
    const QueryTokens query = query_tokens(p_, entry.request);
    const int64_t end = std::min(query.count * p_.num_heads, first + kCombineRows);
    for (int64_t row = first; row < end; ++row) {
      const States states = partials_.states(entry.first_slot, entry.splits, row);
      const CombinedLse lse = combine_lse(states);
      combine_columns(isa_, states, lse, 0, types_.kv.d_v, scratch.rows);
      write(query, row, {scratch.rows, lse.value});
    }
  }

  void write(const QueryTokens& query, int64_t row, const RowResult& result) const {
    outputs_.write(isa_, query.batch, query.begin + row / p_.num_heads, row % p_.num_heads, result);
  }

  const Problem& p_;
  const PlanShape shape_;
  const Plan plan_;
  const Isa& isa_;
  const AttentionTypes types_;
  const RowTensor q_latent_;
  const RowTensor q_rope_;
  const Outputs outputs_;
  const Partials partials_;
  const KvTokens tokens_;
};

}  // namespace

Status can_run(const Problem& p, const AttentionTypes& types) {
  MLA_TRY(check_environment());
  MLA_TRY(check_shapes(p, types));
  MLA_TRY(check_contiguous(p));
  MLA_TRY(check_page_strides("kv_cache", types.kv, pool_view(p), p.num_pages));
  return check_scales(types.q, types.kv, scales(p));
}

Status plan_size(const Problem& p, const AttentionTypes& types, int64_t* bytes) {
  MLA_TRY(check_shapes(p, types));
  *bytes = plan_bytes(plan_shape(p));
  return {};
}

Status plan(const Problem& p, const AttentionTypes& types, Buffer plan) {
  MLA_TRY(check_shapes(p, types));
  if (!is_ragged(p) && p.batch > 0) MLA_TRY(check_requests(p));
  MLA_TRY(check_present({{"seq_lens", p.seq_lens, requests_of(p)}}));
  MLA_TRY(check_lengths(p, kMaxInt));
  make_plan(plan_shape(p), seq_lens(p), plan);
  return {};
}

Status workspace_size(const Problem& p, const AttentionTypes& types, int64_t* bytes) {
  MLA_TRY(check_shapes(p, types));
  const PlanShape shape = plan_shape(p);
  *bytes = Partials::bytes(plan_slots(shape), shape.rows, types.kv.d_v);
  return {};
}

Status launch(const Problem& p, const AttentionTypes& types, ConstBuffer buffer, Buffer workspace) {
  MLA_TRY(can_run(p, types));
  MLA_TRY(check_values(p, types));
  Plan plan;
  MLA_TRY(read_plan(plan_shape(p), buffer, &plan));
  return Launch(p, types, plan, workspace.data).run();
}

}  // namespace mla::cpu::decode
