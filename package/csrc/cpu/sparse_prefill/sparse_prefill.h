#pragma once

#include "common/traits.h"
#include "cpu/op.h"
#include "cpu/sparse/driver.h"
#include "cpu/sparse_prefill/supports.h"
#include "mla/conversions.h"

namespace mla::cpu {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk = kHeadDim,
          int kDV = kLatent>
struct SparsePrefill : Op<mla_sparse_prefill_problem> {
  static constexpr CacheFormat kFormat = kCacheFormat<kKv, kDQk, kDV>;
  static constexpr sparse::Types kTypes = {kQ, kFormat, kFormat, kOut};
  static_assert(sparse_prefill::supports(kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV));

  static Status can_run(const Problem& problem);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);

 private:
  // A prefill is not split, so that it needs no workspace.
  static mla_sparse_decode_problem as_whole(const Problem& problem) {
    mla_sparse_decode_problem decode = as_decode(problem);
    decode.max_splits = 1;
    return decode;
  }
};

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV>::can_run(const Problem& problem) {
  return sparse::can_run(as_whole(problem), kTypes, sparse::kPrefillNames);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV>::launch(const Problem& problem,
                                                                         ConstBuffer,
                                                                         Buffer workspace, Stream) {
  return sparse::launch(as_whole(problem), kTypes, sparse::kPrefillNames, workspace);
}

}  // namespace mla::cpu
