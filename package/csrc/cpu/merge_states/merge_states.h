#pragma once

#include "common/dtype.h"
#include "common/traits.h"
#include "cpu/merge_states/supports.h"
#include "cpu/op.h"

namespace mla::cpu {

namespace merge_states {

Status can_run(const mla_merge_states_problem& problem);
Status launch(const mla_merge_states_problem& problem, DType in, DType out);

}  // namespace merge_states

template <DType kIn, DType kOut, Schedule kSchedule>
struct MergeStates : Op<mla_merge_states_problem> {
  static_assert(merge_states::supports(kIn, kOut, kSchedule));

  static Status can_run(const Problem& problem);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::can_run(const Problem& problem) {
  return merge_states::can_run(problem);
}

template <DType kIn, DType kOut, Schedule kSchedule>
Status MergeStates<kIn, kOut, kSchedule>::launch(const Problem& problem, ConstBuffer, Buffer,
                                                 Stream) {
  return merge_states::launch(problem, kIn, kOut);
}

}  // namespace mla::cpu
