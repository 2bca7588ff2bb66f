#include <cstdint>

#include "common/arithmetic.h"
#include "common/checks.h"
#include "cuda/divisor.h"
#include "cuda/launch.h"
#include "cuda/to_global_indices/to_global_indices.h"

namespace mla::cuda {
namespace to_global_indices {

using Problem = mla_to_global_indices_problem;

constexpr int32_t kAbsent = -1;

int64_t index_count(const Problem& p) { return saturating_product({p.num_tokens, p.topk}); }

// A thread converts up to four indices of a token, which are one vector where memory allows.
constexpr int kIndices = 4;

struct Request {
  const int32_t* pages;
  int64_t table_width;  // 0 for a request that has no row in the block table
};

// A block copies as many pages into its own memory, where 32 threads look up as many in a few
// clocks.
constexpr int64_t kStagedPages = 2048;

__device__ Request request_of(const Problem& p, int64_t t) {
  const int32_t id = static_cast<const int32_t*>(p.req_id)[t];
  if (id < 0 || id >= p.num_requests) return {nullptr, 0};
  return {static_cast<const int32_t*>(p.block_table) + id * p.block_table_stride_b, p.table_width};
}

// Returns -1 for a slot that an index cannot hold, because no attention op could use it.
__device__ int32_t slot_of(const Request& request, const Divisor& page_size, int32_t token) {
  const uint32_t entry = page_size.quotient(static_cast<uint32_t>(token));
  if (token < 0 || entry >= request.table_width) return kAbsent;
  const int32_t page = request.pages[entry];
  if (page < 0) return kAbsent;
  const int64_t slot =
      int64_t{page} * page_size.value() + page_size.remainder(static_cast<uint32_t>(token), entry);
  return slot <= kMaxInt ? static_cast<int32_t>(slot) : kAbsent;
}

__device__ int4 slots_of(const Request& request, const Divisor& page_size, const int4& token) {
  return make_int4(slot_of(request, page_size, token.x), slot_of(request, page_size, token.y),
                   slot_of(request, page_size, token.z), slot_of(request, page_size, token.w));
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(const __grid_constant__ Problem p, const __grid_constant__ Divisor page_size,
                   int64_t groups) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < p.num_tokens * groups;
       i += step) {
    const int64_t t = i / groups;
    const int64_t first = (i - t * groups) * kIndices;
    const int32_t* const tokens =
        static_cast<const int32_t*>(p.token_indices) + t * p.token_indices_stride_t + first;
    int32_t* const out = static_cast<int32_t*>(p.out) + t * p.out_stride_t + first;
    const Request request = request_of(p, t);
    if constexpr (kVectors) {
      *reinterpret_cast<int4*>(out) =
          slots_of(request, page_size, *reinterpret_cast<const int4*>(tokens));
    } else {
      for (int j = 0; j < kIndices && first + j < p.topk; ++j) {
        out[j] = slot_of(request, page_size, tokens[j]);
      }
    }
  }
}

// Each block converts all indices of a token, with the pages of its request in shared memory.
__global__ void __launch_bounds__(kThreads)
    convert_staged_kernel(const __grid_constant__ Problem p,
                          const __grid_constant__ Divisor page_size) {
  __shared__ int32_t pages[kStagedPages];
  const int64_t groups = p.topk / kIndices;
  for (int64_t t = blockIdx.x; t < p.num_tokens; t += gridDim.x) {
    Request request = request_of(p, t);
    for (int64_t i = threadIdx.x; i < request.table_width; i += kThreads) {
      pages[i] = request.pages[i];
    }
    request.pages = pages;
    const auto* const tokens = reinterpret_cast<const int4*>(
        static_cast<const int32_t*>(p.token_indices) + t * p.token_indices_stride_t);
    auto* const out = reinterpret_cast<int4*>(static_cast<int32_t*>(p.out) + t * p.out_stride_t);
    int64_t i = threadIdx.x;
    int4 next = i < groups ? tokens[i] : int4{};  // overlaps the copies of pages
    __syncthreads();
    for (; i < groups; i += kThreads) {
      const int4 token = next;
      if (i + kThreads < groups) next = tokens[i + kThreads];
      out[i] = slots_of(request, page_size, token);
    }
    __syncthreads();
  }
}

bool has_vectors(const Problem& p) {
  return is_aligned(p.token_indices, sizeof(int4)) && is_aligned(p.out, sizeof(int4)) &&
         is_multiple(p.topk, kIndices) && is_multiple(p.token_indices_stride_t, kIndices) &&
         is_multiple(p.out_stride_t, kIndices);
}

}  // namespace to_global_indices

using namespace to_global_indices;

Status ToGlobalIndices::can_run(const Problem& p) {
  MLA_TRY(check_extents({{"num_tokens", p.num_tokens},
                         {"num_requests", p.num_requests},
                         {"table_width", p.table_width},
                         {"topk", p.topk}}));
  if (p.page_size < 1) {
    return Status::error(MLA_RANGE, "page_size", text(p.page_size), "1 or more");
  }
  const int64_t indices = index_count(p);
  MLA_TRY(check_present(
      {{"req_id", p.req_id, indices},
       {"block_table", p.block_table, saturating_product({p.num_requests, p.table_width})},
       {"token_indices", p.token_indices, indices},
       {"out", p.out, indices}}));
  return check_aligned({{"req_id", p.req_id, sizeof(int32_t)},
                        {"block_table", p.block_table, sizeof(int32_t)},
                        {"token_indices", p.token_indices, sizeof(int32_t)},
                        {"out", p.out, sizeof(int32_t)}});
}

Status ToGlobalIndices::prepare(int32_t device) {
  return load_kernels(device, {reinterpret_cast<const void*>(convert_kernel<true>),
                               reinterpret_cast<const void*>(convert_kernel<false>),
                               reinterpret_cast<const void*>(convert_staged_kernel)});
}

Status ToGlobalIndices::launch(const Problem& p, ConstBuffer, Buffer, Stream stream) {
  MLA_TRY(can_run(p));
  if (index_count(p) == 0) return {};
  const DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  const Divisor page_size(static_cast<uint32_t>(std::min(p.page_size, kMaxInt + 1)));
  const bool vectors = has_vectors(p);
  if (vectors && p.table_width <= std::min(kStagedPages, p.topk)) {
    convert_staged_kernel<<<blocks_for(p.num_tokens, 1), kThreads, 0, cuda_stream(stream)>>>(
        p, page_size);
    return check(cudaGetLastError(), "to_global_indices");
  }
  const int64_t groups = ceil_div(p.topk, kIndices);
  const auto kernel = vectors ? convert_kernel<true> : convert_kernel<false>;
  kernel<<<blocks_for(saturating_product({p.num_tokens, groups}), kThreads), kThreads, 0,
           cuda_stream(stream)>>>(p, page_size, groups);
  return check(cudaGetLastError(), "to_global_indices");
}

}  // namespace mla::cuda
