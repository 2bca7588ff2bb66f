// Kernels are given a paged cache as a view.
#pragma once

#include <cstdint>

namespace mla::cuda {

// A view says where the latent and rope rows of a paged cache are. Strides count elements.
struct KvView {
  const void* latent;
  const void* rope;
  int64_t latent_stride_page;
  int64_t latent_stride_token;
  int64_t rope_stride_page;
  int64_t rope_stride_token;
};

}  // namespace mla::cuda
