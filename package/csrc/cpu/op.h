#pragma once

#include "common/op.h"
#include "cpu/pool.h"

namespace mla::cpu {

// The threads of the CPU are what an op prepares, unless it says otherwise.
template <class Problem>
struct Op : mla::Op<Problem> {
  static Status prepare(int32_t) {
    MLA_TRY(check_environment());
    return start_threads();
  }
};

}  // namespace mla::cpu
