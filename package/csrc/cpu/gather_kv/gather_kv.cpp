#include "cpu/gather_kv/gather_kv.h"

#include <algorithm>
#include <cstring>

#include "cpu/cache_rows.h"

namespace mla::cpu::gather_kv {
namespace {

using Problem = mla_gather_kv_problem;

const int32_t* indices(const Problem& p) { return static_cast<const int32_t*>(p.indices); }

Status check_values(const Problem& p, const CacheFormat& format) {
  MLA_TRY(check_present({{"indices", p.indices, p.num_rows},
                         {"out", p.out_latent, p.num_rows},
                         {"out", p.out_rope, format.rope > 0 ? p.num_rows : 0}}));
  const CacheRows cache(p, format);
  MLA_TRY(cache.check());
  return cache.check_slots("indices", indices(p), p.num_rows);
}

void gather_row(const Problem& p, const CacheRows& cache, const CacheFormat& format, DType out,
                int64_t i) {
  const int64_t bytes = static_cast<int64_t>(element_bytes(out));
  std::byte* latent = static_cast<std::byte*>(p.out_latent) + i * p.out_latent_stride_row * bytes;
  std::byte* rope = static_cast<std::byte*>(p.out_rope) + i * p.out_rope_stride_row * bytes;
  const int64_t slot = indices(p)[i];
  if (slot < 0) {
    std::memset(latent, 0, format.latent * bytes);
    if (format.rope > 0) std::memset(rope, 0, format.rope * bytes);
    return;
  }
  const StoredRow stored = cache.at(slot);
  if (format.dtype == out) {
    std::memcpy(latent, stored.latent, format.latent * bytes);
    if (format.rope > 0) std::memcpy(rope, stored.rope, format.rope * bytes);
  } else {
    const Isa& isa = active_isa();
    float row[kMaxDQk];
    isa.gather_row(format, stored, p.kv_scale, row);
    isa.from_fp32(out, row, latent, format.latent);
    isa.from_fp32(out, row + format.latent, rope, format.rope);
  }
}

}  // namespace

Status can_run(const Problem& p, const CacheFormat& format) {
  MLA_TRY(check_environment());
  MLA_TRY(check_extents({{"num_rows", p.num_rows}}));
  return check_kv_scale(format, p.kv_scale);
}

Status launch(const Problem& p, const CacheFormat& format, DType out) {
  MLA_TRY(can_run(p, format));
  MLA_TRY(check_values(p, format));
  const CacheRows cache(p, format);
  const auto gather = [&](int64_t item, const Scratch&) {
    const int64_t end = std::min(p.num_rows, (item + 1) * kCopyRows);
    for (int64_t i = item * kCopyRows; i < end; ++i) gather_row(p, cache, format, out, i);
  };
  return parallel(ceil_div(p.num_rows, kCopyRows), p.num_rows * kCopyNanoseconds, gather);
}

}  // namespace mla::cpu::gather_kv
