// CUTLASS example 77's MLA kernel and its reduction: their types, arguments and launches.
#pragma once

// Assertions of the device code stay in. They cost one compare per load, but without them the order
// of the loads changes and ptxas 13.4 spills 144 bytes per thread. Assertions of the host stay out,
// because they would end the process.
#ifdef __CUDA_ARCH__
#undef NDEBUG
#endif

// The example's headers use what they do not include.
#include <iostream>

#include "cuda/cutlass_element.cuh"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"
#include "cutlass/fast_math.h"
#include "cutlass/kernel_hardware_info.h"
#include "kernel/sm100_fmha_mla_reduction.hpp"
#include "kernel/sm100_mla_tile_scheduler.hpp"
#include "sm100/cutlass_mla/attention_problem.h"
#include "sm100/cutlass_mla/cp_async_wait.cuh"
#include "sm100/cutlass_mla/launch.cuh"
#include "sm100/cutlass_mla/params_cache.h"
#include "sm100/cutlass_mla/split_heuristic.h"
#include "sm100/cutlass_mla/workspace.h"

namespace mla::sm100 {

using cuda::ElementOf;

template <int kDV>
using TileShape = cute::Shape<cute::Int<kHeads>, cute::Int<kTileTokens>,
                              cute::Shape<cute::Int<kDV>, cute::Int<kRope>>>;

template <Schedule kSchedule>
using TileScheduler = std::conditional_t<kSchedule == Schedule::persistent,
                                         cutlass::fmha::kernel::Sm100MlaPersistentTileScheduler,
                                         cutlass::fmha::kernel::Sm100MlaIndividualTileScheduler>;

template <DType kElement, DType kOut, Load kLoad, Schedule kSchedule, int kDV>
using MlaKernel = cutlass::fmha::kernel::Sm100FmhaMlaKernelTmaWarpspecialized<
    TileShape<kDV>, typename ElementOf<kElement>::Type, float, typename ElementOf<kOut>::Type,
    float, TileScheduler<kSchedule>, /*kIsCpAsync=*/kLoad == Load::cpasync>;

template <class ElementOut, int kDV = kLatent>
using ReductionKernel = cutlass::fmha::kernel::Sm100FmhaMlaReductionKernel<ElementOut, float, float,
                                                                           kHeads, kDV, kMaxSplits>;

// Returns the arguments of the kernel for an attention whose rows are prepared in the workspace.
template <class Kernel>
typename Kernel::Arguments make_arguments(const AttentionProblem& attention,
                                          const WorkspaceLayout& layout, void* workspace) {
  using Element = typename Kernel::Element;
  using ElementOut = typename Kernel::ElementOut;
  using Latent = typename Kernel::TileShapeL;
  constexpr int kDV = Latent::value;
  constexpr int kColumns = kDV + kRope;
  char* const base = static_cast<char*>(workspace);
  const RowArrays arrays = row_arrays(attention, layout, workspace);
  const BatchKvView& kv = attention.kv;
  const QueryPacking& query = attention.query;
  const RowResults& results = attention.results;
  const int which = attention.shape.q_len == 1 ? 0 : 1;  // the stride from row to row

  typename Kernel::Arguments arguments = {};
  const int tokens = kv.paged ? static_cast<int>(attention.source.capacity()) : kv.page_size;
  arguments.problem_shape =
      cute::make_tuple(cute::Int<kHeads>{}, tokens, cute::make_tuple(Latent{}, cute::Int<kRope>{}),
                       attention.shape.rows);
  auto& main = arguments.mainloop;
  main.softmax_scale = attention.softmax_scale;
  if (layout.packs_query) {
    Element* const packed = reinterpret_cast<Element*>(base + layout.query);
    main.ptr_q_latent = packed;
    main.ptr_q_rope = packed + kDV;
    main.stride_q_latent = {kColumns, {}, int64_t{kHeads} * kColumns};
    main.stride_q_rope = main.stride_q_latent;
  } else {
    constexpr int64_t kBytes = sizeof(Element);
    main.ptr_q_latent = static_cast<Element*>(const_cast<void*>(query.latent));
    main.ptr_q_rope = static_cast<Element*>(const_cast<void*>(query.rope));
    main.stride_q_latent = {
        query.latent_stride[2] / kBytes, {}, query.latent_stride[which] / kBytes};
    main.stride_q_rope = {query.rope_stride[2] / kBytes, {}, query.rope_stride[which] / kBytes};
  }
  main.ptr_c_latent = static_cast<Element*>(const_cast<void*>(kv.latent));
  main.ptr_k_rope = static_cast<Element*>(const_cast<void*>(kv.rope));
  main.stride_c_latent = {kv.latent_stride_token, {}, kv.latent_stride_page};
  main.stride_k_rope = {kv.rope_stride_token, {}, kv.rope_stride_page};
  main.ptr_seq = arrays.lengths;
  main.ptr_page_table = kv.paged ? arrays.table : nullptr;
  main.stride_page_table = {{}, static_cast<int>(layout.table_stride)};
  main.page_count = static_cast<int>(kv.page_count);
  main.page_size = kv.page_size;

  auto& epilogue = arguments.epilogue;
  epilogue.ptr_o = static_cast<ElementOut*>(layout.unpacks ? base + layout.out : results.out);
  epilogue.stride_o = {kDV, {}, int64_t{kHeads} * kDV};
  epilogue.ptr_lse =
      writes_lse_in_place(attention) ? results.lse : reinterpret_cast<float*>(base + layout.lse);
  epilogue.stride_lse = {{}, kHeads};
  epilogue.output_scale = attention.out_scale;
  arguments.hw_info.device_id = attention.device;
  arguments.hw_info.sm_count = attention.sm_count;
  arguments.split_kv = attention.shape.max_splits;
  arguments.ptr_split_kv = arrays.splits;
  return arguments;
}

// Returns all that the kernel's parameters are made from.
template <class Kernel>
ParamsKey params_key(const typename Kernel::Arguments& arguments, const void* partial) {
  using cute::get;
  const auto& shape = arguments.problem_shape;
  const auto& main = arguments.mainloop;
  const auto& epilogue = arguments.epilogue;
  return ParamsKey(arguments.hw_info.device_id, get<1>(shape), get<3>(shape), partial,
                   arguments.split_kv, arguments.ptr_split_kv, main.softmax_scale,
                   main.ptr_q_latent, get<0>(main.stride_q_latent), get<2>(main.stride_q_latent),
                   main.ptr_q_rope, get<0>(main.stride_q_rope), get<2>(main.stride_q_rope),
                   main.ptr_c_latent, get<0>(main.stride_c_latent), get<2>(main.stride_c_latent),
                   main.ptr_k_rope, get<0>(main.stride_k_rope), get<2>(main.stride_k_rope),
                   main.ptr_seq, main.ptr_page_table, get<1>(main.stride_page_table),
                   main.page_count, main.page_size, epilogue.ptr_o, get<0>(epilogue.stride_o),
                   get<2>(epilogue.stride_o), epilogue.ptr_lse, get<1>(epilogue.stride_lse),
                   epilogue.output_scale);
}

// Sets the attributes that the kernel needs on each device.
template <class Kernel>
Status prepare_kernel(int32_t device) {
  static cuda::PreparedDevices prepared;
  return prepared.ensure(device, [device]() -> Status {
    MLA_TRY(cuda::check(prepare_mainloop<Kernel>(), "shared memory of the kernel"));
    int blocks = 0;
    MLA_TRY(cuda::check(max_active_blocks<Kernel>(&blocks), "occupancy of the kernel"));
    if (blocks > 0) return {};
    return Status::error(MLA_DEVICE, "device",
                         text("device ", device, ", which cannot hold a block"),
                         "a device of compute capability 10.0 or 10.3");
  });
}

template <class Kernel>
Status launch_reduction(const typename Kernel::Params& params, const RowArrays& arrays,
                        cudaStream_t stream) {
  using Reduction = ReductionKernel<typename Kernel::ElementOut, Kernel::TileShapeL::value>;
  typename Reduction::Arguments arguments;
  arguments.ptr_oaccum = params.epilogue.ptr_o_acc;
  arguments.ptr_o = params.epilogue.ptr_o;
  arguments.ptr_lseaccum = params.epilogue.ptr_lse_acc;
  arguments.ptr_lse = params.epilogue.ptr_lse;
  arguments.num_batches = cute::get<3>(params.problem_shape);
  arguments.split_kv = params.split_kv;
  arguments.ptr_seq = arrays.reduction_lengths;
  arguments.ptr_split_kv = arrays.reduction_splits;
  arguments.tile_shape_s = kTileTokens;
  cutlass::device_kernel<Reduction>
      <<<Reduction::get_grid_shape(arguments), Reduction::get_block_shape(), 0, stream>>>(
          arguments);
  return cuda::check(cudaGetLastError(), "launch of the reduction");
}

// Launches the kernel and the reduction, and what moves their results to where they belong.
//
// @pre `launch_rows` has prepared the rows in the workspace, earlier on the same stream.
template <class Kernel>
Status launch_kernel(const AttentionProblem& attention, const WorkspaceLayout& layout,
                     void* workspace, cudaStream_t stream) {
  if (!attention.has_tokens) return {};
  const RowArrays arrays = row_arrays(attention, layout, workspace);
  const auto arguments = make_arguments<Kernel>(attention, layout, workspace);
  void* const partial = static_cast<char*>(workspace) + layout.partial;
  thread_local ParamsCache<typename Kernel::Params> cache;
  const auto& params = cache.find(params_key<Kernel>(arguments, partial), [&] {
    return Kernel::to_underlying_arguments(arguments, partial);
  });
  MLA_TRY(cuda::check(launch_mainloop<Kernel>(params, stream), "launch of the kernel"));
  if (params.split_kv > 1) MLA_TRY(launch_reduction<Kernel>(params, arrays, stream));

  RowResults results = attention.results;
  if (writes_lse_in_place(attention)) results.lse = nullptr;
  if (!layout.unpacks && results.lse == nullptr) return {};
  return unpack_rows(attention.shape, arrays.lengths,
                     layout.unpacks ? params.epilogue.ptr_o : nullptr, attention.out_dtype,
                     params.epilogue.ptr_lse, results, stream);
}

}  // namespace mla::sm100
