#pragma once

#include <cstdint>

#include "common/buffer.h"
#include "common/status.h"

namespace mla {

// An op has neither plan nor workspace and nothing to prepare, unless it says otherwise.
template <class ProblemType>
struct Op {
  using Problem = ProblemType;

  static Status plan_size(const Problem&, int64_t* bytes) { return none(bytes); }
  static Status plan(const Problem&, Buffer, Stream) { return {}; }
  static Status workspace_size(const Problem&, int64_t* bytes) { return none(bytes); }
  static Status prepare(int32_t) { return {}; }

 private:
  static Status none(int64_t* bytes) {
    *bytes = 0;
    return {};
  }
};

}  // namespace mla
