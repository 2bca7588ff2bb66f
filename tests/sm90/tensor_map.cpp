// Checks the tensor maps of dense decode against what a launch's tensors say; prints what differs
// and exits with 1.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "sm90/decode/problem.h"
#include "tests/sm90/tensor_map_driver.h"

namespace {

using namespace mla;
using namespace mla::sm90;
using decode::Params;

// Encodes the maps of the problem that `params` were made of.
Status encode_maps(const Traits& traits, Params* params) {
  mla_decode_problem problem = {};
  problem.batch = params->shape.batch;
  problem.q_len = params->shape.q_len;
  problem.num_heads = params->shape.num_heads;
  return decode::encode_maps(problem, traits, params);
}

constexpr Traits kBf16 = {DType::bf16, DType::bf16, DType::bf16, Load::tma, Schedule::rows_m64};
constexpr Traits kFp8 = {DType::bf16, DType::e4m3, DType::bf16, Load::tma, Schedule::rows_m64};
constexpr Traits kSwapAb = {DType::bf16, DType::bf16, DType::bf16, Load::tma, Schedule::swap_ab};
constexpr Traits kFp8SwapAb = {DType::bf16, DType::e4m3, DType::bf16, Load::tma, Schedule::swap_ab};

Params step(uint64_t cache, int32_t page_size, uint64_t q, int64_t q_stride) {
  Params params = {};
  params.shape.batch = 7;
  params.shape.q_len = 2;
  params.shape.num_heads = 16;
  params.kv.latent = address(cache);
  params.kv.rope = address(cache + 1024);
  params.kv.latent_stride_token = params.kv.rope_stride_token = 576;
  params.kv.latent_stride_page = params.kv.rope_stride_page = 576 * page_size;
  params.kv.num_pages = 9;
  params.kv.page_size = Divisor(static_cast<uint32_t>(page_size));
  params.kv.box_tokens = std::gcd(page_size, 64);
  params.kv.is_in_groups = page_size % 8 == 0;
  params.query.latent = {address(q), {q_stride * 32, q_stride * 16, q_stride}};
  params.query.rope = {address(q + 1024), {q_stride * 32, q_stride * 16, q_stride}};
  params.query.map_heads = Divisor(16);
  params.query.by_tma = 1;
  return params;
}

// The cache's map of `params` and the queries', as its numbers say.
AskedMap cache_map(const Params& params, bool rope, const Traits& traits) {
  const bool is_fp8 = traits.kv == DType::e4m3;
  const PagedKvView& kv = params.kv;
  const uint64_t bytes = is_fp8 ? 1 : 2;
  const uint64_t columns = rope ? 64 : 512;
  const uint64_t token = (rope ? kv.rope_stride_token : kv.latent_stride_token) * bytes;
  const uint64_t page = (rope ? kv.rope_stride_page : kv.latent_stride_page) * bytes;
  const uint64_t size = kv.page_size.value();
  const auto pages = static_cast<uint64_t>(kv.num_pages);
  const auto box = static_cast<uint32_t>(kv.box_tokens);
  const uint32_t chunks = rope ? 1 : 4;
  AskedMap map = {};
  map.data = reinterpret_cast<uintptr_t>(rope ? kv.rope : kv.latent);
  if (is_fp8) {
    map.type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    map.swizzle = traits.schedule == Schedule::swap_ab ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_NONE;
    map.rank = 3;
    set(map.extents, {columns, size, pages});
    set(map.strides, {token, page});
    set(map.box, {64u, box, 1u});
    return map;
  }
  map.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  map.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  map.rank = 5;
  // What has one row has any stride that the driver takes.
  const uint64_t chunk = 64 * bytes;
  if (kv.is_in_groups) {
    set(map.extents, {64, 8, columns / 64, size / 8, pages});
    set(map.strides, {token, chunk, token * 8, page});
    set(map.box, {64u, 8u, chunks, box / 8, 1u});
  } else {
    set(map.extents, {64, size, columns / 64, 1, pages});
    set(map.strides, {token, chunk, chunk, page});
    set(map.box, {64u, box, chunks, 1u, 1u});
  }
  return map;
}

AskedMap query_map(const Params& params, bool rope) {
  const RowView& rows = rope ? params.query.rope : params.query.latent;
  const auto bytes = [&](int i) { return static_cast<uint64_t>(rows.stride[i]) * 2; };
  AskedMap map = {};
  map.data = reinterpret_cast<uintptr_t>(rows.data);
  map.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  map.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  map.rank = 4;
  set(map.extents, {rope ? 64u : 512u, 16, 2, static_cast<uint64_t>(params.shape.batch)});
  set(map.strides, {bytes(2), bytes(1), bytes(0)});
  set(map.box, {64u, 16u, 4u, 1u});
  return map;
}

bool is(const CUtensorMap& map, const AskedMap& want) {
  AskedMap got;
  memcpy(&got, &map, sizeof got);
  const auto same = [](const auto& a, const auto& b) {
    return std::equal(std::begin(a), std::end(a), std::begin(b));
  };
  return got.data == want.data && got.type == want.type && got.rank == want.rank &&
         same(got.extents, want.extents) && same(got.strides, want.strides) &&
         same(got.box, want.box) && got.swizzle == want.swizzle;
}

void check_step(const Params& given, const Traits& traits, const std::string& what) {
  Params params = given;
  check(encode_maps(traits, &params).ok(), what + ": refused");
  check(is(params.latent_map, cache_map(params, false, traits)), what + ": latent");
  check(is(params.rope_map, cache_map(params, true, traits)), what + ": rope");
  check(is(params.query.latent_map, query_map(params, false)), what + ": latent of q");
  check(is(params.query.rope_map, query_map(params, true)), what + ": rope of q");
}

constexpr uint64_t kCache = 1 << 20, kOther = 2 << 20, kQ = 3 << 20;

// The maps that the driver made since the last question.
int fresh() { return encoded.exchange(0); }

void check_memo() {
  for (int repeat = 0; repeat < 3; ++repeat) {
    check_step(step(kCache, 64, kQ, 576), kBf16, "a cache");
    check_step(step(kOther, 64, kQ, 576), kBf16, "another");
  }
  check(fresh() == 6, "two caches and one q are six maps");
  for (int repeat = 0; repeat < 3; ++repeat) {
    check_step(step(kCache, 64, kQ, 576), kBf16, "q");
    check_step(step(kCache, 64, kQ, 1152), kBf16, "q of other strides at the same address");
  }
  check(fresh() == 2, "strides of q are two maps");
  check_step(step(kCache, 128, kQ, 576), kBf16, "a cache of other pages at the same address");
  check(fresh() == 2, "pages are two maps");
  check_step(step(kCache, 48, kQ, 576), kBf16, "boxes of a part of a tile");
  check(fresh() == 2, "boxes are two maps");
  check_step(step(kCache, 100, kQ, 576), kBf16, "pages that do not end with a group of eight");
  check(fresh() == 2, "pages without groups are two maps");
  check_step(step(kCache, 64, kQ, 576), kFp8, "fp8 at the same address");
  check(fresh() == 2, "types are two maps");
  check_step(step(kCache, 64, kQ, 576), kFp8SwapAb, "fp8 as another schedule reads it");
  check(fresh() == 2, "swizzles are two maps");
  check_step(step(kCache, 64, kQ, 576), kSwapAb, "a 16-bit cache as another schedule reads it");
  check(fresh() == 0, "both schedules have the same maps of a 16-bit cache");
  Params larger = step(kCache, 64, kQ, 576);
  larger.kv.num_pages = 10;
  larger.shape.batch = 8;
  check_step(larger, kBf16, "more pages, more requests");
  check(fresh() == 4, "extents are four maps");
}

void check_strides_of_one() {
  Params one = step(kCache, 64, kQ, 576);
  one.shape.batch = one.kv.num_pages = 1;
  one.kv.latent_stride_page = 12345;
  one.query.latent.stride[0] = 54321;
  check(encode_maps(kBf16, &one).ok(), "one page, one request");
  fresh();
  one.kv.latent_stride_page = 7;
  one.query.latent.stride[0] = 5;
  check(encode_maps(kBf16, &one).ok() && fresh() == 0, "a stride that no step takes is ignored");
}

void check_refusals() {
  Params params = step(kCache, 192, kQ, 576);
  refuses = true;
  check(encode_maps(kBf16, &params).code() == MLA_STRIDE, "a refusal");
  check(encode_maps(kBf16, &params).code() == MLA_STRIDE, "a refusal again");
  check(fresh() == 2, "a refusal is not kept");
  refuses = false;
  check_step(params, kBf16, "after a refusal");
  check(fresh() == 2, "what was refused is asked for again");
}

void check_many() {
  constexpr int kMany = 5000;
  for (uint64_t i = 0; i < kMany; ++i) {
    check_step(step(kCache, 64, kQ + 4096 * i, 576), kBf16, "one of many queries");
  }
  check(fresh() < 2 * kMany + 100, "a memo that is full forgets seldom");
  for (uint64_t i = 0; i < 61; ++i) check_step(step(kOther * i, 64, kQ, 576), kBf16, "a layer");
  fresh();
  for (uint64_t i = 0; i < 61; ++i) check_step(step(kOther * i, 64, kQ, 576), kBf16, "a layer");
  check(fresh() == 0, "the layers of a step keep their maps");
}

void check_threads() {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (int repeat = 0; repeat < 1000; ++repeat) {
        check_step(step(kCache, 64 + 64 * (thread % 2), kQ, 576 << repeat % 3), kBf16, "a thread");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(fresh() == 4 * 8, "a thread makes its own maps, once");
}

}  // namespace

int main() {
  check_memo();
  check_strides_of_one();
  check_refusals();
  check_many();
  check_threads();
  return failures == 0 ? 0 : 1;
}
