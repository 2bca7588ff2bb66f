// Loads every box that the kernel would load through its tensor maps and compares it, byte by byte,
// with what lies at the addresses that the same parameters name.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cute/tensor.hpp"

// Boxes compared and boxes that differed, in memory that the host can read.
extern "C" {
struct mla_emulation_counts {
  unsigned long long boxes;
  unsigned long long wrong;
};
__attribute__((visibility("default"))) inline mla_emulation_counts* mla_emulation_counted = nullptr;
}

namespace mla::sm100 {

inline constexpr int kBoxThreads = 128;

// A box of `rows` rows of `bytes` bytes, as shared memory holds it.
struct Box {
  int bytes;
  int rows;

  // TMA's swizzle of rows of 64 or 128 bytes permutes 16-byte words within 512 or 1024 bytes.
  __device__ int address(int row, int byte) const {
    const int linear = row * bytes + byte;
    const int mask = bytes == 128 ? 7 : 3;
    return linear ^ (((linear >> 7) & mask) << 4);
  }
};

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Waits at most a second: a map whose box has another size would otherwise hang.
__device__ inline bool wait(uint64_t* barrier, uint32_t phase) {
  const long long start = clock64();
  uint32_t done = 0;
  while (!done && clock64() - start < 2000000000) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(phase)
        : "memory");
  }
  return done != 0;
}

struct BoxChecker {
  unsigned char* buffer;
  uint64_t* barrier;
  uint32_t phase;
  mla_emulation_counts* counts;

  // `expected(row)` is the address of a row of the box, or null for zeros.
  template <class Expected>
  __device__ void check(const void* map, const Box& box, int c0, int c1, int c2,
                        const Expected& expected) {
    for (int i = threadIdx.x; i < box.bytes * box.rows; i += kBoxThreads) buffer[i] = 0xa5;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
          "r"(box.bytes * box.rows)
          : "memory");
      asm volatile(
          "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
          "{%3, %4, %5}], [%2];" ::"r"(shared_address(buffer)),
          "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
          : "memory");
    }
    bool equal = wait(barrier, phase);
    phase ^= 1;
    for (int i = threadIdx.x; equal && i < box.bytes * box.rows; i += kBoxThreads) {
      const int row = i / box.bytes;
      const int byte = i % box.bytes;
      const unsigned char* from =
          static_cast<const unsigned char*>(static_cast<const void*>(expected(row)));
      equal = buffer[box.address(row, byte)] == (from == nullptr ? 0 : from[byte]);
    }
    equal = __syncthreads_and(equal);
    if (threadIdx.x == 0) {
      atomicAdd_system(&counts->boxes, 1ull);
      if (!equal) atomicAdd_system(&counts->wrong, 1ull);
    }
    __syncthreads();
  }
};

template <class Kernel>
__global__ void __launch_bounds__(kBoxThreads)
    check_boxes(const __grid_constant__ typename Kernel::Params params,
                mla_emulation_counts* counts) {
  using Element = typename Kernel::Element;
  using cute::get;
  constexpr int kBytes = sizeof(Element);
  constexpr int kLatentDim = Kernel::TileShapeL::value;
  __shared__ alignas(1024) unsigned char buffer[16384];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  BoxChecker checker{buffer, &barrier, 0, counts};
  const auto& main = params.mainloop;
  const auto& maps = params.mainloop_params;
  const int row = blockIdx.x;
  const Box rows64 = {64 * kBytes, 64};  // 64 heads or tokens by 64 columns
  const Box columns = {128, 32};         // 32 tokens by 128 bytes of the latent
  const int tokens = main.ptr_seq[row];
  if (tokens == 0) return;

  for (int head = 0; head < 128; head += 64) {
    for (int d = 0; d < kLatentDim; d += 64) {
      checker.check(maps.tma_load_q_latent.get_tma_descriptor(), rows64, d, head, row, [&](int i) {
        return main.ptr_q_latent + (head + i) * get<0>(main.stride_q_latent) +
               row * get<2>(main.stride_q_latent) + d;
      });
    }
    checker.check(maps.tma_load_q_rope.get_tma_descriptor(), rows64, 0, head, row, [&](int i) {
      return main.ptr_q_rope + (head + i) * get<0>(main.stride_q_rope) +
             row * get<2>(main.stride_q_rope);
    });
  }

  const bool paged = main.ptr_page_table != nullptr;
  for (int tile = 0; tile < cute::ceil_div(tokens, 128); ++tile) {
    const int page =
        paged ? main.ptr_page_table[int64_t{row} * get<1>(main.stride_page_table) + tile] : row;
    const int first = paged ? 0 : tile * 128;
    const int end = paged ? main.page_size : get<1>(params.problem_shape);
    const auto token_row = [&](const Element* base, const auto& stride, int token, int d) {
      return token < end ? base + token * get<0>(stride) + page * get<2>(stride) + d : nullptr;
    };
    for (int token = first; token < first + 128; token += 64) {
      for (int d = 0; d < kLatentDim; d += 64) {
        checker.check(maps.tma_load_c_latent.get_tma_descriptor(), rows64, d, token, page,
                      [&](int i) {
                        return token_row(main.ptr_c_latent, main.stride_c_latent, token + i, d);
                      });
      }
      checker.check(maps.tma_load_k_rope.get_tma_descriptor(), rows64, 0, token, page, [&](int i) {
        return token_row(main.ptr_k_rope, main.stride_k_rope, token + i, 0);
      });
    }
    for (int token = first; token < first + 128; token += 32) {
      for (int d = 0; d < kLatentDim; d += 128 / kBytes) {
        checker.check(maps.tma_load_c_latent_transpose.get_tma_descriptor(), columns, d, token,
                      page, [&](int i) {
                        return token_row(main.ptr_c_latent, main.stride_c_latent, token + i, d);
                      });
      }
    }
  }
}

// Only the kernels that load by TMA read through tensor maps.
template <class Kernel>
cudaError_t check_descriptors(const typename Kernel::Params& params, cudaStream_t stream) {
  if constexpr (Kernel::kNumLoadWarps == 1) {
    if (mla_emulation_counted == nullptr) {
      void* memory = nullptr;
      const cudaError_t error =
          cudaHostAlloc(&memory, sizeof(mla_emulation_counts), cudaHostAllocMapped);
      if (error != cudaSuccess) return error;
      mla_emulation_counted = new (memory) mla_emulation_counts{};
    }
    const unsigned rows = static_cast<unsigned>(cute::get<3>(params.problem_shape));
    check_boxes<Kernel><<<rows, kBoxThreads, 0, stream>>>(params, mla_emulation_counted);
    return cudaGetLastError();
  }
  return cudaSuccess;
}

}  // namespace mla::sm100
