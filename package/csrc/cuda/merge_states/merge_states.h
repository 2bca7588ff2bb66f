#pragma once

#include "common/dtype.h"
#include "common/op.h"
#include "common/traits.h"
#include "cuda/merge_states/supports.h"

namespace mla::cuda {

// Merges the states of each row; a count outside [0, num_states] is taken for the nearer end.
template <DType kIn, DType kOut, Schedule kSchedule>
struct MergeStates : Op<mla_merge_states_problem> {
  static_assert(merge_states::supports(kIn, kOut, kSchedule));

  static Status can_run(const Problem& problem);
  static Status prepare(int32_t device);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

}  // namespace mla::cuda
