#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/op.h"
#include "common/traits.h"
#include "sm100/merge_states/supports.h"

namespace mla::sm100 {

// The op is the reduction of CUTLASS example 77, alone: 128 heads of kLatent, up to 256 states in
// its own layout.
template <DType kIn, DType kOut, Schedule kSchedule>
struct MergeStates : Op<mla_merge_states_problem> {
  static_assert(merge_states::supports(kIn, kOut, kSchedule));

  static Status can_run(const Problem& problem);
  static Status workspace_size(const Problem& problem, int64_t* bytes);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

}  // namespace mla::sm100
