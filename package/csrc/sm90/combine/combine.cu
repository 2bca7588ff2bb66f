#include "cuda/merge_states/merge_states.cuh"
#include "sm90/combine/combine.h"
#include "sm90/common/pdl.cuh"

namespace mla::sm90 {
namespace partials {

using cuda::kThreads;
using cuda::kWarp;
using cuda::kWarps;

// A row has kRowWarps warps; so many that they fill the device where there are few rows.
template <DType kOut, bool kVectors, int kRowWarps>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ Params params) {
  const Shape& shape = params.shape;
  const int warp = threadIdx.x / kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kWarps / kRowWarps) + warp / kRowWarps;
  const int32_t request = static_cast<int32_t>(row / shape.rows);
  const int32_t r = static_cast<int32_t>(row % shape.rows);
  launch_dependents();
  wait_for_prerequisites();
  if (request >= shape.batch) return;
  const PlanView plan(params.plan, shape);
  const int32_t first = plan.first_partial[request];
  const int32_t count = plan.first_partial[request + 1] - first;
  if (count == 0) return;
  const int64_t at = int64_t{first} * params.partials.rows + r;
  const int s = shape.token_of(r);
  const int h = shape.head_of(r);
  mla_merge_states_problem states = {};
  states.o = params.partials.out + at * kLatent;
  states.o_stride_n = int64_t{params.partials.rows} * kLatent;
  states.lse = params.partials.lse + at;
  states.lse_stride_n = params.partials.rows;
  states.num_states = count;
  states.head_dim = kLatent;
  states.out = params.out.at<uint16_t>(request, s, h);
  if (params.lse.data != nullptr) states.out_lse = params.lse.at<float>(request, s, h);
  cuda::merge_states::merge_row<DType::fp32, kOut, kVectors, kRowWarps>(
      states, 0, 0, warp % kRowWarps, threadIdx.x % kWarp);
}

template <DType kOut, bool kVectors, int kRowWarps>
Status launch(const Params& params, cudaStream_t stream) {
  constexpr int kRows = kWarps / kRowWarps;
  constexpr int kColumns = kRowWarps == 1 ? kLatent : kWarp * 4;  // that a block merges
  const int64_t rows = int64_t{params.shape.batch} * params.shape.rows;
  cudaLaunchConfig_t config = {};
  config.gridDim = {cuda::blocks_for(rows, kRows), kLatent / kColumns, 1};
  config.blockDim = {kThreads, 1, 1};
  config.stream = stream;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cuda::check(cudaLaunchKernelEx(&config, merge_kernel<kOut, kVectors, kRowWarps>, params),
                     "launch of the merge kernel");
}

}  // namespace partials

template <DType kOut>
Status merge_partials(const Params& params, int32_t device, cudaStream_t stream) {
  using partials::launch;
  int sms = 0;
  MLA_TRY(cuda::sm_count(device, &sms));
  const int64_t rows = int64_t{params.shape.batch} * params.shape.rows;
  const bool few = params.shape.parts >= 8 * params.shape.batch && rows < 2 * sms;
  if (params.out_in_fours) {
    return few ? launch<kOut, true, cuda::kWarps>(params, stream)
               : launch<kOut, true, 1>(params, stream);
  }
  return launch<kOut, false, cuda::kWarps>(params, stream);
}

template <DType kOut>
Status prepare_merge(int32_t device) {
  using partials::merge_kernel;
  return cuda::load_kernels(
      device, {reinterpret_cast<const void*>(merge_kernel<kOut, true, cuda::kWarps>),
               reinterpret_cast<const void*>(merge_kernel<kOut, true, 1>),
               reinterpret_cast<const void*>(merge_kernel<kOut, false, cuda::kWarps>)});
}

template Status merge_partials<DType::fp16>(const Params&, int32_t, cudaStream_t);
template Status merge_partials<DType::bf16>(const Params&, int32_t, cudaStream_t);
template Status prepare_merge<DType::fp16>(int32_t);
template Status prepare_merge<DType::bf16>(int32_t);

}  // namespace mla::sm90
