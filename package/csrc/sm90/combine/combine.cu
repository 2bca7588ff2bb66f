#include "cuda/merge_states/merge_states.cuh"
#include "sm90/combine/combine.h"
#include "sm90/common/pdl.cuh"

namespace mla::sm90 {
namespace combine {

using cuda::kThreads;
using cuda::kWarp;
using cuda::kWarps;

// kRowWarps warps combine a row: one, or eight where rows are too few to fill the device.
template <DType kOut, bool kVectors, int kRowWarps>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ decode::Params params) {
  const Shape& shape = params.shape;
  const int warp = threadIdx.x / kWarp;
  const int64_t row = int64_t{blockIdx.x} * (kWarps / kRowWarps) + warp / kRowWarps;
  const int32_t request = static_cast<int32_t>(row / shape.rows);
  const int32_t r = static_cast<int32_t>(row % shape.rows);
  launch_dependent_grids();
  wait_for_prerequisite_grids();
  if (request >= shape.batch || r >= params.query_rows(request)) return;
  const PlanView plan = params.plan();
  const int32_t first = plan.first_partial[request];
  const int32_t count = plan.first_partial[request + 1] - first;
  if (count == 0) return;
  const int64_t at = int64_t{first} * params.partials.rows + r;
  const int s = shape.token_of(r);
  const int h = shape.head_of(r);
  mla_merge_states_problem states = {};
  states.o = params.partials.row(first, r);
  states.o_stride_n = int64_t{params.partials.rows} * kLatent;
  states.lse = params.partials.lse + at;
  states.lse_stride_n = params.partials.rows;
  states.num_states = count;
  states.head_dim = params.out_columns;
  states.out = params.out.at<uint16_t>(request, s, h);
  if (params.lse.data != nullptr) states.out_lse = params.lse.at<float>(request, s, h);
  cuda::merge_states::merge_row<DType::fp32, kOut, kVectors, kRowWarps,
                                cuda::merge_states::StateLse>(states, 0, 0, warp % kRowWarps,
                                                              threadIdx.x % kWarp);
}

template <DType kOut, bool kVectors, int kRowWarps>
Status launch(const decode::Params& params, cudaStream_t stream) {
  constexpr int kRows = kWarps / kRowWarps;
  constexpr int kColumns = kRowWarps == 1 ? kLatent : kWarp * 4;  // that a block combines
  const int64_t rows = int64_t{params.shape.batch} * params.shape.rows;
  cudaLaunchConfig_t config = {};
  config.gridDim = {cuda::blocks_for(rows, kRows), ceil_div<uint32_t>(params.out_columns, kColumns),
                    1};
  config.blockDim = {kThreads, 1, 1};
  config.stream = stream;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cuda::check(cudaLaunchKernelEx(&config, combine_kernel<kOut, kVectors, kRowWarps>, params),
                     "launch of the combine kernel");
}

}  // namespace combine

template <DType kOut>
Status combine_partials(const decode::Params& params, int32_t device, cudaStream_t stream) {
  using combine::launch;
  int sms = 0;
  MLA_TRY(cuda::sm_count(device, &sms));
  const int64_t rows = int64_t{params.shape.batch} * params.shape.rows;
  const bool few = params.shape.parts >= 8 * params.shape.batch && rows < 2 * sms;
  if (params.out_is_aligned_to_4) {
    return few ? launch<kOut, true, cuda::kWarps>(params, stream)
               : launch<kOut, true, 1>(params, stream);
  }
  return launch<kOut, false, cuda::kWarps>(params, stream);
}

template <DType kOut>
Status prepare_combine(int32_t device) {
  using combine::combine_kernel;
  return cuda::load_kernels(
      device, {reinterpret_cast<const void*>(combine_kernel<kOut, true, cuda::kWarps>),
               reinterpret_cast<const void*>(combine_kernel<kOut, true, 1>),
               reinterpret_cast<const void*>(combine_kernel<kOut, false, cuda::kWarps>)});
}

template Status combine_partials<DType::fp16>(const decode::Params&, int32_t, cudaStream_t);
template Status combine_partials<DType::bf16>(const decode::Params&, int32_t, cudaStream_t);
template Status prepare_combine<DType::fp16>(int32_t);
template Status prepare_combine<DType::bf16>(int32_t);

}  // namespace mla::sm90
