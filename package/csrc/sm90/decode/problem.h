// A problem in the kernels' terms.
#pragma once

#include <string>

#include "common/buffer.h"
#include "common/status.h"
#include "common/traits.h"
#include "mla/abi.h"
#include "sm90/decode/params.h"

namespace mla::sm90 {

struct Traits {
  DType q;
  DType kv;
  DType out;
  Load load;
  Schedule schedule;
};

inline Status refuse(const char* argument, const std::string& got, const std::string& accepts) {
  return Status::error(MLA_UNSUPPORTED, argument, got, accepts);
}

// What the schedule depends on; refuses shapes that the kernels do not take. Tensors may be absent.
Status describe_shape(const mla_decode_problem& problem, Shape* shape);

// Refuses what the kernels cannot do. Tensors may be absent.
Status check_problem(const mla_decode_problem& problem, const Traits& traits);

int64_t workspace_bytes(const Shape& shape);

// All that a launch needs, but for the tensor maps.
Status describe(const mla_decode_problem& problem, const Traits& traits, const Shape& shape,
                const void* plan, void* workspace, Params* params);

}  // namespace mla::sm90
