#pragma once

#include <cstddef>
#include <cstdint>

#include "common/checks.h"
#include "common/dtype.h"
#include "cpu/attention.h"

namespace mla::cpu {

// A row of a cache that may be written.
struct WritableRow {
  std::byte* latent;
  std::byte* rope;
  std::byte* scales;
};

// Finds the rows of a cache [num_pages, page_size] by global slot, page * page_size + offset.
class CacheRows {
 public:
  // It takes every problem that has one cache.
  template <class Problem>
  CacheRows(const Problem& p, const CacheFormat& format)
      : format_(format),
        view_(pool_view(p)),
        tokens_(pool_tokens(format, view_)),
        num_pages_(p.num_pages) {}

  int64_t slots() const { return saturating_product({num_pages_, view_.page_size}); }

  StoredRow at(int64_t slot) const {
    const int64_t page = slot / tokens_.page_size;
    const int64_t offset = slot % tokens_.page_size;
    return {
        tokens_.latent + page * tokens_.latent_page_stride + offset * tokens_.latent_token_stride,
        tokens_.rope + page * tokens_.rope_page_stride + offset * tokens_.rope_token_stride,
        tokens_.scales + page * tokens_.latent_page_stride + offset * tokens_.scales_token_stride};
  }

  WritableRow writable(int64_t slot) const {
    const StoredRow row = at(slot);
    return {const_cast<std::byte*>(row.latent), const_cast<std::byte*>(row.rope),
            const_cast<std::byte*>(row.scales)};
  }

  Status check() const {
    MLA_TRY(check_extents({{"num_pages", num_pages_}, {"page_size", view_.page_size}}));
    MLA_TRY(check_page_strides("kv_cache", format_, view_, num_pages_));
    return check_present({{"kv_cache", view_.latent, slots()},
                          {"kv_cache", view_.rope, format_.has_rope_view() ? slots() : 0}});
  }

  // Refuses slots beyond the cache; negative ones stand for no row.
  template <class Slot>
  Status check_slots(const char* name, const Slot* slot, int64_t n) const {
    const int64_t limit = slots();
    for (int64_t i = 0; i < n; ++i) {
      if (slot[i] >= limit) {
        return Status::error(MLA_RANGE, text(name, "[", i, "]"), text(slot[i]),
                             text("slots below ", limit, " (", num_pages_, " pages of ",
                                  view_.page_size, " tokens), or negative for none"));
      }
    }
    return {};
  }

 private:
  const CacheFormat& format_;
  PoolView view_;
  KvTokens tokens_;
  int64_t num_pages_;
};

// One item copies or converts as many rows, and each takes about as long.
inline constexpr int64_t kCopyRows = 16;
inline constexpr int64_t kCopyNanoseconds = 100;

}  // namespace mla::cpu
