// The widths of attention that products are compiled for.
#pragma once

#include <cstddef>

#include "common/inline.h"
#include "mla/formats.h"

namespace mla::cpu {

template <int kOfQk, int kOfV>
struct Widths {
  static constexpr int kDQk = kOfQk;  // columns of queries and keys
  static constexpr int kDV = kOfV;    // leading columns that are the value
};

struct WidthPair {
  int d_qk;
  int d_v;
};
inline constexpr WidthPair kWidths[] = {{kHeadDim, kLatent}, {512, 512}, {320, 256}};

constexpr bool has_products(int d_qk, int d_v) {
  for (const WidthPair& widths : kWidths) {
    if (widths.d_qk == d_qk && widths.d_v == d_v) return true;
  }
  return false;
}

constexpr int widest(int WidthPair::* width) {
  int widest = 0;
  for (const WidthPair& widths : kWidths) {
    widest = widths.*width > widest ? widths.*width : widest;
  }
  return widest;
}

// A buffer of one row has the columns of the widest one.
inline constexpr int kMaxDQk = widest(&WidthPair::d_qk);
inline constexpr int kMaxDV = widest(&WidthPair::d_v);

namespace {

// Calls body(Widths<...>()) with the widths of a format.
template <size_t kFirst = 0, class Body>
MLA_ALWAYS_INLINE void with_widths(const CacheFormat& format, const Body& body) {
  if constexpr (kFirst < sizeof kWidths / sizeof kWidths[0]) {
    constexpr WidthPair kPair = kWidths[kFirst];
    if (format.d_qk == kPair.d_qk && format.d_v == kPair.d_v) {
      return body(Widths<kPair.d_qk, kPair.d_v>());
    }
    with_widths<kFirst + 1>(format, body);
  }
}

}  // namespace
}  // namespace mla::cpu
