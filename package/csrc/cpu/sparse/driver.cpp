#include "cpu/sparse/driver.h"

#include <algorithm>
#include <limits>

#include "cpu/pool.h"
#include "cpu/sparse/selection.h"
#include "mla/conversions.h"

namespace mla::cpu::sparse {
namespace {

using Problem = mla_sparse_decode_problem;

constexpr int64_t kFewItems = 32;     // fewer leave threads idle, and are split
constexpr int64_t kTargetItems = 64;  // that splitting aims at
constexpr int64_t kLeastChunk = 256;  // a shorter one is not worth its partial results
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool has_extra(const Problem& p) { return p.extra_indices != nullptr; }

// How the work is divided, which depends on shapes only. Splits cut the lists of indices into equal
// chunks.
struct Division {
  int64_t row_blocks;  // in a query token
  int64_t block_rows;
  int64_t splits;
  int64_t extra_splits;

  int64_t parts() const { return splits + extra_splits; }
  bool split() const { return splits > 1 || extra_splits > 1; }
  int64_t slots() const { return split() ? parts() : 0; }
};

Division divide(const Problem& p) {
  Division division;
  // An item that is not split attends both caches, and keeps the two results side by side.
  division.block_rows = has_extra(p) ? kMaxRows / 2 : kMaxRows;
  division.row_blocks = ceil_div(p.num_heads, division.block_rows);
  const int64_t items = saturating_product({p.batch, p.q_len, division.row_blocks});
  const int64_t most = p.max_splits > 0 ? std::min(p.max_splits, kTargetItems) : kTargetItems;
  const int64_t wanted =
      items == 0 || items >= kFewItems ? 1 : std::min(most, kTargetItems / items);
  division.splits = std::clamp<int64_t>(p.topk / kLeastChunk, 1, wanted);
  division.extra_splits =
      has_extra(p) ? std::clamp<int64_t>(p.extra_topk / kLeastChunk, 1, wanted) : 0;
  return division;
}

int64_t query_tokens(const Problem& p) { return p.batch * p.q_len; }

// Refuses a list whose positions do not fit in the 32 bits that attention counts them in.
Status check_list(const char* name, const char* dim, int64_t length) {
  if (length <= kMaxInt) return {};
  return Status::error(MLA_SHAPE, name, text(dim, " = ", length), text("0 to ", kMaxInt));
}

Status check_shapes(const Problem& p, const Types& types, const Names& names) {
  MLA_TRY(check_extents({{"batch", p.batch},
                         {"q_len", p.q_len},
                         {"num_heads", p.num_heads},
                         {"topk", p.topk},
                         {names.kv, p.num_pages},
                         {names.kv, p.page_size},
                         {"extra_topk", p.extra_topk},
                         {names.extra_kv, p.extra_num_pages},
                         {names.extra_kv, p.extra_page_size},
                         {"max_splits", p.max_splits}}));
  MLA_TRY(check_list("indices", "topk", p.topk));
  MLA_TRY(check_list("extra_indices", "extra_topk", p.extra_topk));
  constexpr int64_t kMostRows = int64_t{1} << 40;
  if (saturating_product({p.batch, p.q_len, std::max<int64_t>(1, p.num_heads)}) > kMostRows) {
    return Status::error(
        MLA_SHAPE, "q",
        text("[", p.batch, ", ", p.q_len, ", ", p.num_heads, ", ", types.kv.d_qk, "]"),
        text("up to 2^40 rows of ", types.kv.d_qk));
  }
  return {};
}

Selection selection_of(const Problem& p, const CacheFormat& format, const char* indices_name,
                       const char* lengths_name) {
  return {&format,
          indices_name,
          lengths_name,
          static_cast<const int32_t*>(p.indices),
          p.indices_stride_b,
          p.indices_stride_s,
          p.topk,
          static_cast<const int32_t*>(p.topk_length),
          p.topk_length_stride_b,
          p.topk_length_stride_s,
          saturating_product({p.num_pages, p.page_size}),
          pool_tokens(format, pool_view(p))};
}

Selection main_selection(const Problem& p, const Types& types) {
  return selection_of(p, types.kv, "indices", "topk_length");
}

Selection extra_selection(const Problem& p, const Types& types) {
  return selection_of(as_extra(p), types.extra_kv, "extra_indices", "extra_topk_length");
}

Status check_values(const Problem& p, const Types& types, const Names& names) {
  const int64_t tokens = query_tokens(p);
  const int64_t rows = tokens * p.num_heads;
  const Selection main = main_selection(p, types);
  const Selection extra = extra_selection(p, types);
  const auto rope_slots = [](const Selection& selection) {
    return selection.format->has_rope_view() ? selection.slots : 0;
  };
  MLA_TRY(
      check_present({{"q", p.q_latent, rows},
                     {"q", p.q_rope, types.kv.rope > 0 ? rows : 0},
                     {"out", p.out, rows},
                     {"indices", p.indices, saturating_product({tokens, p.topk})},
                     {"extra_indices", p.extra_indices, saturating_product({tokens, p.extra_topk})},
                     {names.kv, p.kv_latent, main.slots},
                     {names.kv, p.kv_rope, rope_slots(main)}}));
  MLA_TRY(main.check(p.batch, p.q_len, names.batched));
  if (!has_extra(p)) return {};
  MLA_TRY(check_present({{names.extra_kv, p.extra_kv_latent, extra.slots},
                         {names.extra_kv, p.extra_kv_rope, rope_slots(extra)}}));
  return extra.check(p.batch, p.q_len, names.batched);
}

class Launch {
 public:
  Launch(const Problem& p, const Types& types, void* workspace)
      : p_(p),
        division_(divide(p)),
        isa_(active_isa()),
        types_(types),
        main_(main_selection(p, types)),
        extra_(extra_selection(p, types)),
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
                 row_tensor(p.max_logits, sizeof(float), p.max_logits_stride_b,
                            p.max_logits_stride_s, p.max_logits_stride_h),
                 static_cast<const float*>(p.attn_sink)},
        partials_(workspace, division_.slots(), query_tokens(p) * p.num_heads, types.kv.d_v) {}

  Status run() const {
    const int64_t rows = query_tokens(p_) * p_.num_heads;
    const int64_t blocks = query_tokens(p_) * division_.row_blocks;
    const int64_t nanoseconds =
        attend_nanoseconds(types_.kv, saturating_product({rows, p_.topk + p_.extra_topk}));
    if (!division_.split()) {
      return parallel(blocks, nanoseconds, [this](int64_t i, const Scratch& scratch) {
        attend_whole(block(i), scratch);
      });
    }
    const int64_t parts = division_.parts();
    MLA_TRY(parallel(blocks * parts, nanoseconds, [this, parts](int64_t i, const Scratch& scratch) {
      attend_part(block(i / parts), i % parts, scratch);
    }));
    return parallel(ceil_div(rows, kCombineRows), rows * parts * d_v() / 8,
                    [this, rows](int64_t i, const Scratch& scratch) {
                      const int64_t end = std::min(rows, (i + 1) * kCombineRows);
                      for (int64_t row = i * kCombineRows; row < end; ++row) combine(row, scratch);
                    });
  }

 private:
  // A block is heads [first, first + rows) of a query token.
  struct Block {
    int64_t b;
    int64_t s;
    int64_t first;
    int rows;
  };

  // Tokens [begin, end) of a selection.
  struct Part {
    const Selection& selection;
    int64_t begin;
    int64_t end;
  };

  int64_t d_v() const { return types_.kv.d_v; }

  Block block(int64_t index) const {
    const int64_t token = index / division_.row_blocks;
    const int64_t first = index % division_.row_blocks * division_.block_rows;
    const int64_t rows = std::min(division_.block_rows, p_.num_heads - first);
    return {token / p_.q_len, token % p_.q_len, first, static_cast<int>(rows)};
  }

  Part part(const Block& block, int64_t index) const {
    const bool in_main = index < division_.splits;
    const Selection& selection = in_main ? main_ : extra_;
    const int64_t split = in_main ? index : index - division_.splits;
    const int64_t chunk =
        ceil_div(selection.topk, in_main ? division_.splits : division_.extra_splits);
    const int64_t length = selection.length_at(block.b, block.s);
    return {selection, std::min(length, split * chunk), std::min(length, (split + 1) * chunk)};
  }

  int64_t row(const Block& block) const {
    return (block.b * p_.q_len + block.s) * p_.num_heads + block.first;
  }

  void attend_whole(const Block& block, const Scratch& scratch) const {
    const int64_t parts = division_.parts();
    float lse[kMaxRows];
    float max_logits[kMaxRows];
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t at = i * division_.block_rows;
      attend(block, part(block, i), scratch, scratch.rows + at * d_v(), lse + at, max_logits + at);
    }
    for (int64_t r = 0; r < block.rows; ++r) {
      if (parts == 1) {
        write(block.b, block.s, block.first + r, {scratch.rows + r * d_v(), lse[r], max_logits[r]});
        continue;
      }
      const States states = {DType::fp32,
                             reinterpret_cast<const std::byte*>(scratch.rows + r * d_v()),
                             division_.block_rows * d_v() * int64_t{sizeof(float)},
                             lse + r,
                             division_.block_rows,
                             parts};
      float o[kMaxDV];
      write(block.b, block.s, block.first + r,
            combined(states, max_logits + r, division_.block_rows, o));
    }
  }

  void attend_part(const Block& block, int64_t index, const Scratch& scratch) const {
    const int64_t first = row(block);
    attend(block, part(block, index), scratch, partials_.o(index, first),
           partials_.lse(index, first), partials_.max_logit(index, first));
  }

  void attend(const Block& block, const Part& part, const Scratch& scratch, float* o, float* lse,
              float* max_logits) const {
    if (part.begin >= part.end) {
      std::fill_n(o, block.rows * d_v(), 0.0f);
      std::fill_n(lse, block.rows, -kInfinity);
      std::fill_n(max_logits, block.rows, -kInfinity);
      return;
    }
    QueryRows query;
    for (int r = 0; r < block.rows; ++r) {
      query.latent[r] = q_latent_.at(block.b, block.s, block.first + r);
      query.rope[r] = q_rope_.at(block.b, block.s, block.first + r);
    }
    AttendItem item;
    item.q_dtype = types_.q;
    item.format = part.selection.format;
    item.rows = block.rows;
    item.q_latent = query.latent;
    item.q_rope = query.rope;
    item.kv = part.selection.tokens;
    item.kv.slots = part.selection.at(block.b, block.s);
    item.begin = part.begin;
    item.end = part.end;
    item.o = o;
    item.o_stride = d_v();
    item.lse = lse;
    item.max_logit = max_logits;
    item.scratch = scratch.isa;
    set_scales(scales(p_), item);
    isa_.attend(item);
  }

  void combine(int64_t row, const Scratch& scratch) const {
    const int64_t token = row / p_.num_heads;
    write(token / p_.q_len, token % p_.q_len, row % p_.num_heads,
          combined(partials_.states(0, division_.parts(), row), partials_.max_logit(0, row),
                   query_tokens(p_) * p_.num_heads, scratch.rows));
  }

  RowResult combined(const States& states, const float* max_logits, int64_t stride,
                     float* o) const {
    const CombinedLse lse = combine_lse(states);
    combine_columns(isa_, states, lse, 0, d_v(), o);
    float greatest = -kInfinity;
    for (int64_t i = 0; i < states.count; ++i) {
      greatest = std::max(greatest, max_logits[i * stride]);
    }
    return {o, lse.value, greatest};
  }

  void write(int64_t b, int64_t s, int64_t h, const RowResult& result) const {
    outputs_.write(isa_, b, s, h, result);
  }

  const Problem& p_;
  const Division division_;
  const Isa& isa_;
  const Types types_;
  const Selection main_;
  const Selection extra_;
  const RowTensor q_latent_;
  const RowTensor q_rope_;
  const Outputs outputs_;
  const Partials partials_;
};

}  // namespace

Status can_run(const Problem& p, const Types& types, const Names& names) {
  MLA_TRY(check_environment());
  MLA_TRY(check_shapes(p, types, names));
  MLA_TRY(check_page_strides(names.kv, types.kv, pool_view(p), p.num_pages));
  if (has_extra(p)) {
    const Problem extra = as_extra(p);
    MLA_TRY(check_page_strides(names.extra_kv, types.extra_kv, pool_view(extra), extra.num_pages));
  }
  return check_scales(types.q, types.kv, scales(p));
}

Status workspace_size(const Problem& p, const Types& types, const Names& names, int64_t* bytes) {
  MLA_TRY(check_shapes(p, types, names));
  const Division division = divide(p);
  *bytes = Partials::bytes(division.slots(), query_tokens(p) * p.num_heads, types.kv.d_v);
  return {};
}

Status launch(const Problem& p, const Types& types, const Names& names, Buffer workspace) {
  MLA_TRY(can_run(p, types, names));
  MLA_TRY(check_values(p, types, names));
  return Launch(p, types, workspace.data).run();
}

}  // namespace mla::cpu::sparse
