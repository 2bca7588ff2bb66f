// A paged cache as kernels are given it.
#pragma once

#include <cstdint>

namespace mla::cuda {

// Latent and rope rows of a paged cache. Strides count elements.
struct KvView {
  const void* latent;
  const void* rope;
  int64_t latent_stride_page;
  int64_t latent_stride_token;
  int64_t rope_stride_page;
  int64_t rope_stride_token;
};

}  // namespace mla::cuda
