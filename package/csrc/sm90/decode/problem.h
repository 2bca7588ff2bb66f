// From a problem of dense decode to what its kernels are given.
#pragma once

#include "common/buffer.h"
#include "common/status.h"
#include "mla/abi.h"
#include "sm90/common/tensor_map.h"
#include "sm90/params/dense.h"

namespace mla::sm90::decode {

// The shape, which the plan depends on. Tensors may be absent.
Status describe_shape(const mla_decode_problem& problem, Shape* shape);

// Refuses what the kernels cannot do. Tensors may be absent.
Status check_problem(const mla_decode_problem& problem, const Traits& traits);

int64_t workspace_bytes(const Shape& shape);

// Sets all that a launch needs but the tensor maps.
Status describe(const mla_decode_problem& problem, const Traits& traits, const Shape& shape,
                const void* plan, void* workspace, Params* params);

// Encodes the maps of what the launch loads by TMA.
Status encode_maps(const mla_decode_problem& problem, const Traits& traits, Params* params);

}  // namespace mla::sm90::decode
