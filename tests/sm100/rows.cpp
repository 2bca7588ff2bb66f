// The kernels around CUTLASS's on the host: what they make of queries, tables, selected rows of two
// caches and results. Prints what differs and exits with 1.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/status.h"
#include "sm100/decode/problem.h"
#include "sm100/sparse_decode/gather_selected.cuh"
#include "sm100/sparse_decode/problem.h"
#include "tests/sm100/support.h"

namespace {

using namespace mla;
using namespace mla::sm100;

constexpr uint16_t kPoison = 0xa5a5;

std::mt19937 source(1);

int below(int end) { return static_cast<int>(source() % static_cast<unsigned>(end)); }

std::vector<uint16_t> random_words(size_t count) {
  std::vector<uint16_t> words(count);
  for (uint16_t& word : words) word = static_cast<uint16_t>(source() & 0x3fff);  // finite, below 2
  return words;
}

template <class Element>
uint16_t scaled(uint16_t bits, float factor) {
  Element value;
  std::memcpy(reinterpret_cast<void*>(&value), &bits, sizeof(bits));
  value = Element(static_cast<float>(value) * factor);
  std::memcpy(&bits, reinterpret_cast<const void*>(&value), sizeof(bits));
  return bits;
}

// A launch up to CUTLASS's kernel, in host memory.
struct Launch {
  AttentionProblem attention;
  WorkspaceLayout layout;
  std::vector<char> workspace;
  RowArrays arrays;

  template <class Problem>
  Launch(const Problem& problem, const Traits& traits) {
    check(describe_all(problem, traits, &attention).ok() && lay_out(attention, &layout).ok(),
          "a legal problem");
    workspace.assign(static_cast<size_t>(layout.bytes), static_cast<char>(kPoison));
    arrays = row_arrays(attention, layout, workspace.data());
    check(launch_rows(attention, layout, workspace.data(), nullptr).ok(), "the kernel of rows");
  }

  template <class T>
  T* at(int64_t offset) {
    return reinterpret_cast<T*>(workspace.data() + offset);
  }
};

// Queries of 2 x 3 tokens in parts of some widths, with `gap` elements behind each part.
struct Queries {
  int heads, latent, rope, gap;
  std::vector<uint16_t> latents, ropes;

  Queries(int heads, int latent, int rope, int gap)
      : heads(heads),
        latent(latent),
        rope(rope),
        gap(gap),
        latents(random_words(size_t{6} * heads * (latent + gap))),
        ropes(random_words(size_t{6} * heads * (rope + gap))) {}

  template <class Problem>
  void set(Problem* p) {
    p->q_latent = latents.data();
    p->q_latent_stride_h = latent + gap;
    p->q_latent_stride_s = heads * p->q_latent_stride_h;
    p->q_latent_stride_b = 3 * p->q_latent_stride_s;
    p->q_rope = rope > 0 ? ropes.data() : nullptr;
    p->q_rope_stride_h = rope + gap;
    p->q_rope_stride_s = heads * p->q_rope_stride_h;
    p->q_rope_stride_b = 3 * p->q_rope_stride_s;
    p->batch = 2;
    p->q_len = 3;
    p->num_heads = heads;
    p->softmax_scale = p->q_scale = p->kv_scale = p->out_scale = 1;
  }

  // What a packed row [128, columns] should have at a column of a head; nothing of other heads.
  uint16_t expected(int row, int h, int column) const {
    const size_t at = static_cast<size_t>(row) * heads + h;
    if (column < latent) return latents[at * (latent + gap) + column];
    if (column < latent + rope) return ropes[at * (rope + gap) + column - latent];
    return 0;
  }
};

void test_packed_queries(const Traits& traits, int latent, int rope, int gap, int heads) {
  Queries queries(heads, latent, rope, gap);
  mla_sparse_decode_problem p = {};
  queries.set(&p);
  std::vector<uint16_t> out(size_t{6} * heads * traits.d_v, kPoison);
  std::vector<float> lse(size_t{6} * heads, 7);
  p.out = out.data();
  p.out_stride_h = traits.d_v;
  p.out_stride_s = heads * traits.d_v;
  p.out_stride_b = 3 * p.out_stride_s;
  p.lse = lse.data();
  p.lse_stride_h = 1;
  p.lse_stride_s = heads;
  p.lse_stride_b = 3 * heads;
  Launch launch(p, traits);
  const int columns = traits.d_v + kRope;
  const auto* packed = launch.at<uint16_t>(launch.layout.query);
  bool equal = launch.layout.packs_query;
  const int tiles = (heads + kHeads - 1) / kHeads;
  for (int row = 0; row < 6 * tiles; ++row) {
    for (int h = 0; h < kHeads; ++h) {
      const int head = row % tiles * kHeads + h;
      for (int c = 0; c < columns; ++c) {
        const uint16_t wanted = head < heads ? queries.expected(row / tiles, head, c) : kPoison;
        equal &= packed[(row * kHeads + h) * columns + c] == wanted;
      }
    }
  }
  // No token has a key, because nothing is selected.
  equal &= std::count(out.begin(), out.end(), 0) == static_cast<int64_t>(out.size());
  equal &= std::count(lse.begin(), lse.end(), -INFINITY) == static_cast<int64_t>(lse.size());
  check(equal, "packed queries and empty results of " + std::to_string(latent) + " and " +
                   std::to_string(rope));
}

// What a query token selects of a cache: slots in their order, of which some do not exist.
struct Selection {
  int slots, topk;
  std::vector<int32_t> indices, counts;

  Selection(int slots, int topk) : slots(slots), topk(topk) {
    for (int i = 0; i < 6 * topk; ++i)
      indices.push_back(below(4) == 0 ? -1 - below(9) : below(slots));
    for (int row = 0; row < 6; ++row) counts.push_back(below(topk + 20) - 5);
    if (topk > 0) indices[0] = slots;  // one beyond
    counts[1] = topk;
    counts[4] = 0;
  }

  std::vector<int32_t> expected(int row) const {
    std::vector<int32_t> found;
    for (int i = 0; i < std::min(counts[row], topk); ++i) {
      const int32_t slot = indices[row * topk + i];
      if (slot >= 0 && slot < slots) found.push_back(slot);
    }
    return found;
  }
};

template <DType kKv>
struct Cache {
  static constexpr CacheFormat kFormat = kCacheFormat<kKv, 512, 512>;
  int pages, page_size, first;
  int64_t page_bytes;
  std::vector<uint8_t> bytes;

  // Its memory begins `first` bytes behind an address of whole vectors.
  Cache(int pages, int page_size, int first)
      : pages(pages),
        page_size(page_size),
        first(first),
        page_bytes(kFormat.page_bytes(page_size)),
        bytes(static_cast<size_t>(first + pages * page_bytes)) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(0x20 + below(0x58));  // finite codes
  }

  uint8_t* data() { return bytes.data() + first; }

  // The row of a slot as gather_kv reads it.
  std::vector<uint16_t> row(int32_t slot) {
    mla_gather_kv_problem p = {};
    std::vector<uint16_t> found(512);
    p.kv_latent = data();
    p.kv_latent_stride_page = page_bytes;
    p.kv_latent_stride_token = kFormat.token_bytes;
    p.num_pages = pages;
    p.page_size = page_size;
    const cuda::gather_kv::Arguments<kKv, 512, 512> arguments = {
        cuda::CacheRows<kKv, 512, 512>(p), &slot,
        cuda::token_rows<cuda::RowPacks<DType::bf16, kKv, 512, 512>>(
            found.data(), 512, found.data() + kFormat.latent, 512),
        1, 1};
    on_host::launch(cuda::gather_kv::gather_kernel<kKv, DType::bf16, 512, 512, false>, 1,
                    cuda::kRowThreads, 0, nullptr)(arguments);
    return found;
  }
};

template <DType kKv, DType kExtra>
void test_two_caches(ExtraKv extra_kv, int topk, int extra_topk, int first = 0, int heads = 2) {
  const Traits traits = {DType::bf16,          kKv, DType::bf16, Load::gather,
                         Schedule::individual, 512, 512,         extra_kv};
  Cache<kKv> cache(7, 5, first);
  Cache<kExtra> extra(4, 3, 0);
  Selection selection(35, topk), extra_selection(12, extra_topk);
  Queries queries(heads, Cache<kKv>::kFormat.latent, Cache<kKv>::kFormat.rope, 0);
  mla_sparse_decode_problem p = {};
  queries.set(&p);
  const auto set = [](auto& from, const Selection& selected, auto*... to) {
    int64_t i = 0;
    const int64_t values[] = {from.page_bytes,
                              from.kFormat.token_bytes,
                              from.pages,
                              from.page_size,
                              selected.topk,
                              3 * selected.topk,
                              selected.topk,
                              3,
                              1};
    ((*to = values[i++]), ...);
  };
  set(cache, selection, &p.kv_latent_stride_page, &p.kv_latent_stride_token, &p.num_pages,
      &p.page_size, &p.topk, &p.indices_stride_b, &p.indices_stride_s, &p.topk_length_stride_b,
      &p.topk_length_stride_s);
  set(extra, extra_selection, &p.extra_kv_latent_stride_page, &p.extra_kv_latent_stride_token,
      &p.extra_num_pages, &p.extra_page_size, &p.extra_topk, &p.extra_indices_stride_b,
      &p.extra_indices_stride_s, &p.extra_topk_length_stride_b, &p.extra_topk_length_stride_s);
  p.kv_latent = cache.data();
  p.max_splits = 1;
  p.indices = selection.indices.data();
  p.topk_length = selection.counts.data();
  if (extra_topk > 0) {
    p.extra_kv_latent = extra.data();
    p.extra_indices = extra_selection.indices.data();
    p.extra_topk_length = extra_selection.counts.data();
  }
  std::vector<uint16_t> out(static_cast<size_t>(6 * heads * 512), kPoison);
  p.out = out.data();
  p.out_stride_h = 512;
  p.out_stride_s = heads * 512;
  p.out_stride_b = 3 * heads * 512;
  Launch launch(p, traits);
  auto* const rows = launch.at<uint16_t>(launch.layout.gathered);
  const int32_t num_rows = launch.attention.shape.rows, tiles = num_rows / 6;
  check((gather_selected::launch<kKv, kExtra, DType::bf16, 512>(p, num_rows, launch.arrays, rows,
                                                                nullptr))
            .ok(),
        "the kernel that gathers");
  check(tiles == (heads + kHeads - 1) / kHeads, "a row for each tile of heads");
  for (int row = 0; row < num_rows; ++row) {
    const int token = row / tiles;
    const std::vector<int32_t> first = selection.expected(token);
    const std::vector<int32_t> second =
        extra_topk > 0 ? extra_selection.expected(token) : std::vector<int32_t>();
    const auto tokens = static_cast<int32_t>(first.size() + second.size());
    const std::string name = "row " + std::to_string(row) + " of " + cache.kFormat.name;
    const bool counts_both = launch.arrays.table == nullptr ||
                             launch.arrays.extra_lengths[row] == static_cast<int>(second.size());
    check(launch.arrays.lengths[row] == tokens && launch.arrays.splits[row] == (tokens > 0) &&
              counts_both,
          name + ": its tokens");
    bool equal = true;
    for (int i = 0; i < launch.arrays.table_stride; ++i) {
      std::vector<uint16_t> wanted(512, i < tile_count(tokens) * kTileTokens ? 0 : kPoison);
      const size_t of_first = first.size();
      if (static_cast<size_t>(i) < of_first) wanted = cache.row(first[i]);
      if (static_cast<size_t>(i) >= of_first && i < tokens)
        wanted = extra.row(second[i - of_first]);
      equal &= std::equal(wanted.begin(), wanted.end(),
                          rows + (row * launch.arrays.table_stride + i) * 512);
    }
    check(equal, name + ": what is gathered");
    const uint16_t written = tokens == 0 ? 0 : kPoison;
    check(std::all_of(out.begin() + token * heads * 512, out.begin() + (token + 1) * heads * 512,
                      [&](uint16_t word) { return word == written; }),
          name + ": 0 only where nothing is selected");
  }
}

// Outputs of a tensor [2, 3, heads, d_v + gap], scaled by a sink or copied; token 1 has no keys.
void test_results(DType dtype, int heads, int d_v, int gap, bool sink) {
  const int tiles = (heads + kHeads - 1) / kHeads;
  const RowShape shape = {6 * tiles, 3, heads, tiles, 1, d_v};
  const auto from = random_words(static_cast<size_t>(shape.rows) * kHeads * d_v);
  std::vector<float> lse(static_cast<size_t>(shape.rows) * kHeads), sinks, lse_out(6 * heads, -7);
  for (float& value : lse) value = static_cast<float>(below(1000)) / 250 - 2;
  for (int h = 0; h < heads; ++h) sinks.push_back(h == 2 ? INFINITY : below(100) / 25.f - 2);
  const int64_t stride = d_v + gap;
  std::vector<uint16_t> out(static_cast<size_t>(6 * heads * stride), kPoison);
  std::vector<int32_t> lengths;
  for (int row = 0; row < shape.rows; ++row) lengths.push_back(row / tiles == 1 ? 0 : row + 1);
  const RowResults results = {out.data(),
                              {3 * heads * stride, heads * stride, stride},
                              lse_out.data(),
                              {3 * heads, heads, 1},
                              sink ? sinks.data() : nullptr};
  check(unpack_rows(shape, lengths.data(), from.data(), dtype, lse.data(), results, nullptr).ok(),
        "the kernel that unpacks");
  bool equal = true;
  for (int token = 0; token < 6; ++token) {
    for (int h = 0; h < heads; ++h) {
      const size_t at = static_cast<size_t>(token * tiles + h / kHeads) * kHeads + h % kHeads;
      const float share = sink ? 1 / (1 + std::exp(sinks[h] - lse[at])) : 1;
      equal &= lse_out[token * heads + h] == (token == 1 ? -7 : lse[at]);
      for (int c = 0; c < stride; ++c) {
        uint16_t wanted = kPoison;
        if (token != 1 && c < d_v) {
          const uint16_t given = from[at * d_v + c];
          wanted = dtype == DType::fp16 ? scaled<__half>(given, share)
                                        : scaled<__nv_bfloat16>(given, share);
        }
        equal &= out[(token * heads + h) * stride + c] == wanted;
      }
    }
  }
  check(equal, "results of " + std::to_string(heads) + " heads, " + std::to_string(d_v) +
                   (sink ? " columns and a sink" : " columns"));
}

constexpr Traits traits_of(DType kv, Load load, int d_qk) {
  return {DType::bf16, kv, DType::bf16, load, Schedule::individual, d_qk, 512};
}

}  // namespace

int main() {
  for (const int gap : {0, 3}) {
    test_packed_queries(traits_of(DType::bf16, Load::cpasync, 576), 512, 64, gap, 5);
    test_packed_queries(traits_of(DType::bf16, Load::cpasync, 512), 512, 0, gap, 5);
    test_packed_queries(traits_of(DType::fp8_ds_v4, Load::gather, 512), 448, 64, gap, 5);
  }
  test_packed_queries(traits_of(DType::bf16, Load::cpasync, 512), 512, 0, 0, 131);
  test_two_caches<DType::fp8_ds_v4, DType::fp8_ds_v4>(ExtraKv::same, 20, 9);
  test_two_caches<DType::fp8_ds_v4, DType::fp8_ds_v4>(ExtraKv::same, 300, 0);
  test_two_caches<DType::fp8_ds_v4, DType::fp8_ds_v4>(ExtraKv::same, 0, 40);
  test_two_caches<DType::fp8_ds_v4, DType::fp8_ds_v4>(ExtraKv::same, 0, 0);
  test_two_caches<DType::fp8_ds_mla, DType::fp8_ds_mla>(ExtraKv::same, 30, 20, 4);
  test_two_caches<DType::mxfp4_ds_v4, DType::mxfp4_ds_v4>(ExtraKv::same, 30, 20, 1);
  test_two_caches<DType::fp8_ds_v4, DType::fp8_ds_v4>(ExtraKv::same, 10, 5, 0, 130);
  test_two_caches<DType::fp8_ds_v41, DType::fp4_ds_v41>(ExtraKv::fp4_ds_v41, 130, 260);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const bool sink : {false, true}) {
      test_results(dtype, 3, 512, 0, sink);
      test_results(dtype, 3, 256, 5, sink);
    }
    test_results(dtype, 140, 256, 0, true);
  }
  return failures == 0 ? 0 : 1;
}
