// Tensor maps of a cache and of queries for the tensor memory accelerator.
#pragma once

#include "common/status.h"
#include "sm90/decode/params.h"
#include "sm90/decode/problem.h"

namespace mla::sm90 {

// Fills the maps of what is loaded so, KV and Q; a box is one chunk of one tile.
Status encode_maps(const Traits& traits, Params* params);

}  // namespace mla::sm90
