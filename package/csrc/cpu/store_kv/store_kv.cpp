#include "cpu/store_kv/store_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/cache_rows.h"
#include "cpu/store_kv/quantise.h"

namespace mla::cpu::store_kv {
namespace {

using Problem = mla_store_kv_problem;

const int64_t* slot_mapping(const Problem& p) {
  return static_cast<const int64_t*>(p.slot_mapping);
}

Status check_values(const Problem& p, const CacheFormat& format) {
  const bool scaled = format.scale_place == ScalePlace::tensor;
  MLA_TRY(check_present({{"latent", p.latent, p.num_tokens},
                         {"rope", p.rope, format.rope > 0 ? p.num_tokens : 0},
                         {"slot_mapping", p.slot_mapping, p.num_tokens},
                         {"scale", p.scale, scaled ? 1 : 0}}));
  const CacheRows cache(p, format);
  MLA_TRY(cache.check());
  if (scaled) {
    const float scale = *static_cast<const float*>(p.scale);
    if (!(scale > 0 && std::isfinite(scale))) {
      return Status::error(MLA_RANGE, "scale", text(scale), "a positive number");
    }
  }
  return cache.check_slots("slot_mapping", slot_mapping(p), p.num_tokens);
}

void divide(float* values, int n, float divisor) {
  for (int i = 0; i < n; ++i) values[i] /= divisor;
}

void store_row(const Problem& p, DType in, const CacheFormat& format, int64_t t,
               const WritableRow& to) {
  const int64_t bytes = static_cast<int64_t>(element_bytes(in));
  const std::byte* from_latent =
      static_cast<const std::byte*>(p.latent) + t * p.latent_stride_t * bytes;
  const std::byte* from_rope = static_cast<const std::byte*>(p.rope) + t * p.rope_stride_t * bytes;
  if (in == format.dtype) {
    std::memcpy(to.latent, from_latent, format.latent * bytes);
    if (format.rope > 0) std::memcpy(to.rope, from_rope, format.rope * bytes);
    return;
  }
  const Isa& isa = active_isa();
  float values[kMaxDQk];
  isa.to_fp32(in, from_latent, values, format.latent);
  if (format.rope > 0) isa.to_fp32(in, from_rope, values + format.latent, format.rope);
  if (format.is_bytes) {
    quantise(format, p.power_of_two_scales != 0, values, to);
  } else {
    divide(values, format.d_qk, *static_cast<const float*>(p.scale));
    isa.from_fp32(format.latent_type, values, to.latent, format.latent);
  }
  if (format.rope > 0) {
    isa.from_fp32(format.rope_type, values + format.latent, to.rope, format.rope);
  }
}

}  // namespace

Status can_run(const Problem& p, const CacheFormat& format) {
  MLA_TRY(check_environment());
  MLA_TRY(check_extents({{"num_tokens", p.num_tokens}}));
  return check_store_scales(format, p);
}

Status launch(const Problem& p, DType in, const CacheFormat& format) {
  MLA_TRY(can_run(p, format));
  MLA_TRY(check_values(p, format));
  const CacheRows cache(p, format);
  const auto store = [&](int64_t i, const Scratch&) {
    const int64_t end = std::min(p.num_tokens, (i + 1) * kCopyRows);
    for (int64_t t = i * kCopyRows; t < end; ++t) {
      const int64_t slot = slot_mapping(p)[t];
      if (slot >= 0) store_row(p, in, format, t, cache.writable(slot));
    }
  };
  return parallel(ceil_div(p.num_tokens, kCopyRows), p.num_tokens * kCopyNanoseconds, store);
}

}  // namespace mla::cpu::store_kv
