// The size of a warp.
#pragma once

namespace mla::cuda {

inline constexpr int kWarp = 32;

}  // namespace mla::cuda
