#pragma once

#include "common/dtype.h"
#include "cpu/gather_kv/supports.h"
#include "cpu/op.h"

namespace mla::cpu {

namespace gather_kv {

Status can_run(const mla_gather_kv_problem& problem, const CacheFormat& format);
Status launch(const mla_gather_kv_problem& problem, const CacheFormat& format, DType out);

}  // namespace gather_kv

template <DType kKv, DType kOut, int kDQk = kHeadDim, int kDV = kLatent>
struct GatherKv : Op<mla_gather_kv_problem> {
  static_assert(gather_kv::supports(kKv, kOut, kDQk, kDV));

  static Status can_run(const Problem& problem);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

template <DType kKv, DType kOut, int kDQk, int kDV>
Status GatherKv<kKv, kOut, kDQk, kDV>::can_run(const Problem& problem) {
  return gather_kv::can_run(problem, kCacheFormat<kKv, kDQk, kDV>);
}

template <DType kKv, DType kOut, int kDQk, int kDV>
Status GatherKv<kKv, kOut, kDQk, kDV>::launch(const Problem& problem, ConstBuffer, Buffer, Stream) {
  return gather_kv::launch(problem, kCacheFormat<kKv, kDQk, kDV>, kOut);
}

}  // namespace mla::cpu
