#pragma once

#include "common/traits.h"
#include "cpu/op.h"
#include "cpu/sparse/driver.h"

namespace mla::cpu {

namespace sparse {

// Prefill as the decode of one request whose caches are one page each, not split.
mla_sparse_decode_problem as_decode(const mla_sparse_prefill_problem& problem);

}  // namespace sparse

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
struct SparsePrefill : Op<mla_sparse_prefill_problem> {
  static constexpr AttentionTypes kTypes = {kQ, kKv, kOut};
  static_assert(kLoad == Load::direct && kSchedule == Schedule::rows);

  static Status can_run(const Problem& problem);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  return sparse::can_run(sparse::as_decode(problem), kTypes, sparse::kPrefillNames);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparsePrefill<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem, ConstBuffer,
                                                              Buffer workspace, Stream) {
  return sparse::launch(sparse::as_decode(problem), kTypes, sparse::kPrefillNames, workspace);
}

}  // namespace mla::cpu
