// Runs CUDA kernels on the host, a thread of the block for each thread of the host and one block
// after another, so that a test without a GPU sees what a kernel writes. It has what the tested
// kernels use, and no more; `on_host.py` rewrites their launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#undef __grid_constant__
#undef __launch_bounds__
#undef __shared__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // blocks do not run at the same time

using std::max;
using std::min;

namespace on_host {

class Barrier {
 public:
  explicit Barrier(unsigned count) { pthread_barrier_init(&barrier_, nullptr, count); }
  ~Barrier() { pthread_barrier_destroy(&barrier_); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  void wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

struct Warp {
  Barrier barrier{32};
  std::atomic<unsigned> mask{0};
};

struct Block {
  Barrier barrier;
  std::unique_ptr<Warp[]> warps;

  explicit Block(unsigned threads) : barrier(threads), warps(new Warp[threads / 32]) {}
};

inline thread_local Block* block;
inline thread_local uint3 thread_index, block_index;
inline thread_local dim3 grid_size;

template <class Kernel>
auto launch(Kernel kernel, dim3 grid, dim3 threads, size_t, cudaStream_t) {
  return [=](const auto&... arguments) {
    if (grid.x == 0 || grid.y == 0) std::abort();  // as CUDA refuses it
    Block shared(threads.x);
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        std::vector<std::thread> running;
        for (unsigned t = 0; t < threads.x; ++t) {
          running.emplace_back([&, x, y, t] {
            block = &shared;
            thread_index = {t, 0, 0};
            block_index = {x, y, 0};
            grid_size = grid;
            kernel(arguments...);
          });
        }
        for (std::thread& thread : running) thread.join();
      }
    }
  };
}

}  // namespace on_host

#define threadIdx on_host::thread_index
#define blockIdx on_host::block_index
#define gridDim on_host::grid_size

inline void __syncthreads() { on_host::block->barrier.wait(); }

inline unsigned __ballot_sync(unsigned, bool value) {
  on_host::Warp& warp = on_host::block->warps[threadIdx.x / 32];
  if (value) warp.mask |= 1u << threadIdx.x % 32;
  warp.barrier.wait();
  const unsigned mask = warp.mask;
  warp.barrier.wait();
  if (threadIdx.x % 32 == 0) warp.mask = 0;
  warp.barrier.wait();
  return mask;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline float __fmul_rn(float a, float b) { return a * b; }

inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline int atomicAdd(int* to, int value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
