#include "cpu/store_kv/store_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/attention.h"
#include "cpu/cache_rows.h"

namespace mla::cpu::store_kv {
namespace {

using Problem = mla_store_kv_problem;
using Limits = std::numeric_limits<float>;

constexpr float kMaxE4m3 = 448;

const int64_t* slot_mapping(const Problem& p) {
  return static_cast<const int64_t*>(p.slot_mapping);
}

Status check_values(const Problem& p, DType kv) {
  MLA_TRY(check_present({{"latent", p.latent, p.num_tokens},
                         {"rope", p.rope, p.num_tokens},
                         {"slot_mapping", p.slot_mapping, p.num_tokens},
                         {"scale", p.scale, kv == DType::e4m3 ? 1 : 0}}));
  const CacheRows cache(p, kv);
  MLA_TRY(cache.check());
  if (kv == DType::e4m3) {
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

// NaN does not take part.
float greatest_magnitude(const float* values, int n) {
  float greatest = 0;
  for (int i = 0; i < n; ++i) {
    const float magnitude = std::fabs(values[i]);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return greatest;
}

void store_ds_mla(const Isa& isa, float* values, std::byte* row) {
  for (int group = 0; group < kLatent / kDsMlaGroup; ++group) {
    float* const tile = values + group * kDsMlaGroup;
    // A normal number, so that the quotients keep their precision and an empty tile divides.
    const float scale =
        std::clamp(greatest_magnitude(tile, kDsMlaGroup) / kMaxE4m3, Limits::min(), Limits::max());
    divide(tile, kDsMlaGroup, scale);
    std::memcpy(row + kDsMlaScaleOffset + group * sizeof scale, &scale, sizeof scale);
  }
  isa.from_fp32(DType::e4m3, values, row, kLatent);
  isa.from_fp32(DType::bf16, values + kLatent, row + kDsMlaRopeOffset, kRope);
}

void store_row(const Problem& p, DType in, DType kv, int64_t t, std::byte* latent,
               std::byte* rope) {
  const int64_t bytes = static_cast<int64_t>(element_bytes(in));
  const std::byte* from_latent =
      static_cast<const std::byte*>(p.latent) + t * p.latent_stride_t * bytes;
  const std::byte* from_rope = static_cast<const std::byte*>(p.rope) + t * p.rope_stride_t * bytes;
  if (in == kv) {
    std::memcpy(latent, from_latent, kLatent * bytes);
    std::memcpy(rope, from_rope, kRope * bytes);
    return;
  }
  const Isa& isa = active_isa();
  float values[kHeadDim];
  isa.to_fp32(in, from_latent, values, kLatent);
  isa.to_fp32(in, from_rope, values + kLatent, kRope);
  if (kv == DType::fp8_ds_mla) {
    store_ds_mla(isa, values, latent);
    return;
  }
  divide(values, kHeadDim, *static_cast<const float*>(p.scale));
  isa.from_fp32(kv, values, latent, kLatent);
  isa.from_fp32(kv, values + kLatent, rope, kRope);
}

}  // namespace

Status can_run(const Problem& p, DType kv) {
  MLA_TRY(check_environment());
  MLA_TRY(check_extents({{"num_tokens", p.num_tokens}}));
  if (p.scale != nullptr && kv != DType::e4m3) {
    return Status::error(MLA_UNSUPPORTED, "scale", "a tensor", "none for a cache that is not e4m3");
  }
  return {};
}

Status launch(const Problem& p, DType in, DType kv) {
  MLA_TRY(can_run(p, kv));
  MLA_TRY(check_values(p, kv));
  const CacheRows cache(p, kv);
  const auto store = [&](int64_t i, const Scratch&) {
    const int64_t end = std::min(p.num_tokens, (i + 1) * kCopyRows);
    for (int64_t t = i * kCopyRows; t < end; ++t) {
      const int64_t slot = slot_mapping(p)[t];
      if (slot >= 0) store_row(p, in, kv, t, cache.latent(slot), cache.rope(slot));
    }
  };
  return parallel(ceil_div(p.num_tokens, kCopyRows), p.num_tokens * kCopyNanoseconds, store);
}

}  // namespace mla::cpu::store_kv
