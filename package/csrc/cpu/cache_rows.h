#pragma once

#include <cstddef>
#include <cstdint>

#include "common/checks.h"
#include "common/dtype.h"

namespace mla::cpu {

constexpr int max_head_dim() {
  int widest = 0;
  for (const CacheFormat& format : kCacheFormats) {
    widest = format.d_qk > widest ? format.d_qk : widest;
  }
  return widest;
}

// A buffer of one row has the columns of the widest one.
inline constexpr int kMaxHeadDim = max_head_dim();

// Finds the rows of a cache [num_pages, page_size] by global slot, page * page_size + offset.
class CacheRows {
 public:
  // It takes every problem that has one cache.
  template <class Problem>
  CacheRows(const Problem& p, const CacheFormat& format)
      : latent_{static_cast<std::byte*>(p.kv_latent), p.kv_latent_stride_page,
                p.kv_latent_stride_token},
        rope_{static_cast<std::byte*>(p.kv_rope), p.kv_rope_stride_page, p.kv_rope_stride_token},
        bytes_(static_cast<int64_t>(element_bytes(format.dtype))),
        num_pages_(p.num_pages),
        page_size_(p.page_size),
        rope_offset_(format.rope_offset),
        has_rope_view_(format.has_rope_view()) {}

  int64_t slots() const { return saturating_product({num_pages_, page_size_}); }

  std::byte* latent(int64_t slot) const { return at(latent_, slot); }
  std::byte* rope(int64_t slot) const {
    return has_rope_view_ ? at(rope_, slot) : at(latent_, slot) + rope_offset_;
  }

  Status check() const {
    MLA_TRY(check_extents({{"num_pages", num_pages_}, {"page_size", page_size_}}));
    return check_present({{"kv_cache", latent_.data, slots()},
                          {"kv_cache", rope_.data, has_rope_view_ ? slots() : 0}});
  }

  // Refuses slots beyond the cache; negative ones stand for no row.
  template <class Slot>
  Status check_slots(const char* name, const Slot* slot, int64_t n) const {
    const int64_t limit = slots();
    for (int64_t i = 0; i < n; ++i) {
      if (slot[i] >= limit) {
        return Status::error(MLA_RANGE, text(name, "[", i, "]"), text(slot[i]),
                             text("slots below ", limit, " (", num_pages_, " pages of ", page_size_,
                                  " tokens), or negative for none"));
      }
    }
    return {};
  }

 private:
  struct View {
    std::byte* data;
    int64_t stride_page;
    int64_t stride_token;
  };

  std::byte* at(const View& view, int64_t slot) const {
    const int64_t page = slot / page_size_;
    const int64_t offset = slot % page_size_;
    return view.data + (page * view.stride_page + offset * view.stride_token) * bytes_;
  }

  View latent_;
  View rope_;
  int64_t bytes_;
  int64_t num_pages_;
  int64_t page_size_;
  int rope_offset_;
  bool has_rope_view_;
};

// One item copies or converts as many rows, and each takes about as long.
inline constexpr int64_t kCopyRows = 16;
inline constexpr int64_t kCopyNanoseconds = 100;

}  // namespace mla::cpu
