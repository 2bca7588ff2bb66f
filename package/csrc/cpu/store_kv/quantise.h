// Quantises a row of a cache that holds scales.
#pragma once

#include "cpu/cache_rows.h"

namespace mla::cpu::store_kv {

// Writes the elements and the scales of the latent of a row. Each group of columns has a scale: its
// greatest magnitude over the greatest element, as the type of the scale rounds it; up, if that is
// a power of two. NaN stays NaN: its element, or its whole group, by a scale of NaN and elements of
// 0, where the elements have none.
//
// @pre The format's latent is e4m3 or e2m1.
void quantise(const CacheFormat& format, bool power_of_two, const float* latent,
              const WritableRow& to);

}  // namespace mla::cpu::store_kv
