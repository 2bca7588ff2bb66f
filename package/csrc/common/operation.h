#pragma once

#include <cstdint>

#include "common/buffer.h"
#include "common/checks.h"
#include "common/status.h"

namespace mla {

// The entry points of a variant; a problem is the struct of the variant's op.
struct Operation {
  const char* name;
  mla_op op;
  Status (*can_run)(const void* problem);
  Status (*plan_size)(const void* problem, int64_t* bytes);
  Status (*plan)(const void* problem, Buffer plan, Stream stream);
  Status (*workspace_size)(const void* problem, int64_t* bytes);
  Status (*prepare)(int32_t device);
  Status (*launch)(const void* problem, ConstBuffer plan, Buffer workspace, Stream stream);
};

// Returns the variants of this payload in the order of its registry.
const Operation* operations(int64_t* count);

// Makes entry points of a class of static functions, and checks that buffers are large enough
// before the class sees them.
template <class Op>
struct OperationOf {
  using Problem = typename Op::Problem;

  static const Problem& view(const void* problem) { return *static_cast<const Problem*>(problem); }

  static Status can_run(const void* problem) { return Op::can_run(view(problem)); }

  static Status plan_size(const void* problem, int64_t* bytes) {
    return Op::plan_size(view(problem), bytes);
  }

  static Status plan(const void* problem, Buffer plan, Stream stream) {
    int64_t needed = 0;
    MLA_TRY(Op::plan_size(view(problem), &needed));
    MLA_TRY(check_buffer("plan", {plan.data, plan.bytes}, needed));
    return Op::plan(view(problem), plan, stream);
  }

  static Status workspace_size(const void* problem, int64_t* bytes) {
    return Op::workspace_size(view(problem), bytes);
  }

  static Status launch(const void* problem, ConstBuffer plan, Buffer workspace, Stream stream) {
    int64_t needed = 0;
    MLA_TRY(Op::plan_size(view(problem), &needed));
    MLA_TRY(check_buffer("plan", plan, needed));
    MLA_TRY(Op::workspace_size(view(problem), &needed));
    MLA_TRY(check_buffer("workspace", {workspace.data, workspace.bytes}, needed));
    return Op::launch(view(problem), plan, workspace, stream);
  }
};

template <class Op>
constexpr Operation operation(const char* name, mla_op op) {
  using Entry = OperationOf<Op>;
  return {name,           op,
          Entry::can_run, Entry::plan_size,
          Entry::plan,    Entry::workspace_size,
          Op::prepare,    Entry::launch};
}

}  // namespace mla
