#pragma once

#include "common/dtype.h"
#include "cpu/op.h"
#include "cpu/store_kv/supports.h"

namespace mla::cpu {

namespace store_kv {

Status can_run(const mla_store_kv_problem& problem, const CacheFormat& format);
Status launch(const mla_store_kv_problem& problem, DType in, const CacheFormat& format);

}  // namespace store_kv

template <DType kIn, DType kKv, int kDQk = kHeadDim, int kDV = kLatent>
struct StoreKv : Op<mla_store_kv_problem> {
  static_assert(store_kv::supports(kIn, kKv, kDQk, kDV));

  static Status can_run(const Problem& problem);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

template <DType kIn, DType kKv, int kDQk, int kDV>
Status StoreKv<kIn, kKv, kDQk, kDV>::can_run(const Problem& problem) {
  return store_kv::can_run(problem, kCacheFormat<kKv, kDQk, kDV>);
}

template <DType kIn, DType kKv, int kDQk, int kDV>
Status StoreKv<kIn, kKv, kDQk, kDV>::launch(const Problem& problem, ConstBuffer, Buffer, Stream) {
  return store_kv::launch(problem, kIn, kCacheFormat<kKv, kDQk, kDV>);
}

}  // namespace mla::cpu
