// Exports the C functions of a payload, which look a variant up and call it.
#include <exception>
#include <vector>

#include "common/operation.h"
#include "common/text.h"

namespace mla {
namespace {

template <class Call>
mla_status guarded(const Call& call) {
  try {
    return call().code();
  } catch (const std::exception& error) {
    return Status::error(MLA_INTERNAL, "payload", error.what(), "no exception").code();
  } catch (...) {
    return Status::error(MLA_INTERNAL, "payload", "an unknown exception", "no exception").code();
  }
}

template <class Call>
mla_status with_variant(int64_t variant, const Call& call) {
  return guarded([&] {
    int64_t count = 0;
    const Operation* all = operations(&count);
    if (variant < 0 || variant >= count) {
      return Status::error(MLA_RANGE, "variant", text(variant), text("0 to ", count - 1));
    }
    return call(all[variant]);
  });
}

template <class Call>
mla_status with_problem(int64_t variant, const void* problem, const Call& call) {
  return with_variant(variant, [&](const Operation& operation) {
    if (problem == nullptr) return Status::error(MLA_SHAPE, "problem", "null", "a problem");
    const int32_t op = *static_cast<const int32_t*>(problem);  // the first field of every problem
    if (op != operation.op) {
      return Status::error(MLA_UNSUPPORTED, "op", text(op),
                           text(static_cast<int32_t>(operation.op), ", which is what ",
                                operation.name, " computes"));
    }
    return call(operation);
  });
}

Status no_bytes() { return Status::error(MLA_SHAPE, "bytes", "null", "where to put the size"); }

}  // namespace
}  // namespace mla

using mla::Operation;

extern "C" {

const char* mla_abi_hash(void) { return MLA_ABI_HASH; }

const char* mla_version(void) { return MLA_VERSION; }

const mla_variant* mla_registry(int64_t* count) {
  const mla_variant* variants = nullptr;
  int64_t size = 0;
  (void)mla::guarded([&] {
    static const std::vector<mla_variant> registry = [] {
      int64_t number = 0;
      const Operation* all = mla::operations(&number);
      std::vector<mla_variant> names;
      for (int64_t i = 0; i < number; ++i) names.push_back({all[i].name, all[i].op});
      return names;
    }();
    variants = registry.data();
    size = static_cast<int64_t>(registry.size());
    return mla::Status();
  });
  if (count != nullptr) *count = size;
  return variants;
}

mla_status mla_can_run(int64_t variant, const void* problem) {
  return mla::with_problem(variant, problem,
                           [&](const Operation& operation) { return operation.can_run(problem); });
}

mla_status mla_plan_size(int64_t variant, const void* problem, int64_t* bytes) {
  return mla::with_problem(variant, problem, [&](const Operation& operation) {
    return bytes == nullptr ? mla::no_bytes() : operation.plan_size(problem, bytes);
  });
}

mla_status mla_plan(int64_t variant, const void* problem, void* plan, int64_t plan_bytes,
                    void* stream) {
  return mla::with_problem(variant, problem, [&](const Operation& operation) {
    return operation.plan(problem, {plan, plan_bytes}, stream);
  });
}

mla_status mla_workspace_size(int64_t variant, const void* problem, int64_t* bytes) {
  return mla::with_problem(variant, problem, [&](const Operation& operation) {
    return bytes == nullptr ? mla::no_bytes() : operation.workspace_size(problem, bytes);
  });
}

mla_status mla_prepare(int64_t variant, int32_t device) {
  return mla::with_variant(variant,
                           [&](const Operation& operation) { return operation.prepare(device); });
}

mla_status mla_launch(int64_t variant, const void* problem, const void* plan, int64_t plan_bytes,
                      void* workspace, int64_t workspace_bytes, void* stream) {
  return mla::with_problem(variant, problem, [&](const Operation& operation) {
    return operation.launch(problem, {plan, plan_bytes}, {workspace, workspace_bytes}, stream);
  });
}

const char* mla_last_error(void) { return mla::last_error(); }

}  // extern "C"
