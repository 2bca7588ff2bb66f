#include "sm100/cutlass_mla/workspace.h"

#include "common/arithmetic.h"
#include "common/checks.h"
#include "sm100/cutlass_mla/split_heuristic.h"

namespace mla::sm100 {
namespace {

int64_t align(int64_t offset) { return ceil_div(offset, 256) * 256; }

}  // namespace

Status lay_out(const AttentionProblem& attention, WorkspaceLayout* layout) {
  const int64_t rows = attention.shape.rows;
  const int64_t d_v = attention.shape.d_v;
  const int64_t splits = attention.shape.max_splits;
  const RowSource& source = attention.source;
  layout->packs_query = !reads_query_in_place(attention);
  layout->unpacks = !writes_out_in_place(attention);
  layout->table_stride = 0;
  if (source.entry_tokens > 0 && source.main.width + source.extra.width > 0) {
    const int64_t tokens = ceil_div(source.capacity(), kTileTokens) * kTileTokens;
    layout->table_stride = ceil_div(tokens, source.entry_tokens);
    if (saturating_product({layout->table_stride, rows}) > kMaxInt) {
      return Status::error(MLA_UNSUPPORTED, "block_table",
                           text(rows, " rows of ", layout->table_stride, " entries"),
                           "fewer than 2^31 entries: the kernel counts them in 32 bits");
    }
  }
  layout->arrays = 0;
  layout->table = align(5 * rows * int64_t{sizeof(int32_t)});
  layout->query = align(layout->table + rows * layout->table_stride * int64_t{sizeof(int32_t)});
  layout->out =
      align(layout->query + (layout->packs_query ? rows * kHeads * attention.query.row_bytes : 0));
  layout->lse = align(layout->out + (layout->unpacks ? rows * kHeads * d_v * 2 : 0));
  layout->gathered = align(layout->lse + rows * kHeads * int64_t{sizeof(float)});
  layout->partial =
      align(layout->gathered + rows * layout->table_stride * attention.gathered_columns * 2);
  const int64_t partial_floats = splits > 1 ? rows * splits * kHeads * (d_v + 1) : 0;
  layout->bytes = layout->partial + partial_floats * int64_t{sizeof(float)};
  return {};
}

Status launch_rows(const AttentionProblem& attention, const WorkspaceLayout& layout,
                   void* workspace, cudaStream_t stream) {
  QueryPacking query = attention.query;
  query.packed = layout.packs_query ? static_cast<char*>(workspace) + layout.query : nullptr;
  return prepare_rows(attention.shape, attention.source, row_arrays(attention, layout, workspace),
                      query, attention.results, stream);
}

RowArrays row_arrays(const AttentionProblem& attention, const WorkspaceLayout& layout,
                     void* workspace) {
  char* const base = static_cast<char*>(workspace);
  int32_t* const arrays = reinterpret_cast<int32_t*>(base + layout.arrays);
  const int64_t rows = attention.shape.rows;
  int32_t* const table =
      layout.table_stride > 0 ? reinterpret_cast<int32_t*>(base + layout.table) : nullptr;
  return {arrays, arrays + rows,      arrays + 2 * rows, arrays + 3 * rows, arrays + 4 * rows,
          table,  layout.table_stride};
}

}  // namespace mla::sm100
