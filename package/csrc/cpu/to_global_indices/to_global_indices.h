#pragma once

#include "cpu/op.h"

namespace mla::cpu {

struct ToGlobalIndices : Op<mla_to_global_indices_problem> {
  static Status can_run(const Problem& problem);
  static Status launch(const Problem& problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

}  // namespace mla::cpu
