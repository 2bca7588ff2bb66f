#pragma once

#include "common/op.h"

namespace mla::cuda {

// A token whose request has no row in the block table has no slots.
struct ToGlobalIndices : Op<mla_to_global_indices_problem> {
  static Status can_run(const Problem& problem);
  static Status prepare(int32_t device);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

}  // namespace mla::cuda
