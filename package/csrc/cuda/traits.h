// The traits of a variant as numbers, for host code that is compiled once for all variants.
#pragma once

#include "common/dtype.h"
#include "common/traits.h"
#include "mla/formats.h"

namespace mla::cuda {

struct Traits {
  DType q;
  DType kv;
  DType out;
  Load load;
  Schedule schedule;
  int d_qk = kHeadDim;
  int d_v = kLatent;
  ExtraKv extra_kv = ExtraKv::same;
  ComputeDType compute = ComputeDType::exact;

  constexpr const CacheFormat& format() const { return *find_cache_format(kv, d_qk, d_v); }
  constexpr const CacheFormat& second_format() const {
    return *find_cache_format(extra_format(extra_kv, kv), d_qk, d_v);
  }
};

}  // namespace mla::cuda
