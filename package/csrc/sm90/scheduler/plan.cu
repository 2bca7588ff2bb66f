// Plans a step: one block cuts the KV of all requests into parts of equal cost. A request that a
// cut falls into is split.
#include <cub/block/block_scan.cuh>

#include "cuda/launch.h"
#include "sm90/scheduler/plan.h"
#include "sm90/scheduler/split_heuristic.h"

namespace mla::sm90 {
namespace scheduler {

constexpr int kThreads = 512;

using Scan = cub::BlockScan<int64_t, kThreads>;

struct Request {
  int64_t blocks;
  int64_t split_blocks;  // 0: it may be cut anywhere

  __device__ Request(int32_t length, int32_t max_splits)
      : blocks(ceil_div<int64_t>(max(length, 0), kTileTokens)),
        split_blocks(max_splits == 0 ? 0 : max(ceil_div<int64_t>(blocks, max_splits), int64_t{1})) {
  }

  __device__ int64_t splits() const {
    return split_blocks == 0 ? 1 : max(ceil_div(blocks, split_blocks), int64_t{1});
  }
  __device__ int64_t cost() const { return blocks + SplitHeuristic::kOverhead * splits(); }
};

// The line of requests, cut at every multiple of `rise` / `run`, rounded down.
struct Line : SplitHeuristic {
  int64_t rise;
  int64_t run;

  __device__ int64_t cut(int part) const { return part * rise / run; }
  // The first part whose cut is at `place` or beyond.
  __device__ int64_t first_from(int64_t place) const { return ceil_div(place * run, rise); }

  // The first part whose cut splits a request that begins at `start`.
  __device__ int64_t first_cut(int64_t start) const { return first_from(start + overhead + 1); }
  // How many cuts split the request.
  __device__ int64_t cuts(int64_t start, const Request& request, int parts) const {
    const int64_t end = min(first_from(start + overhead + request.blocks), int64_t{parts});
    return max(end - first_cut(start), int64_t{0});
  }
};

// If requests are not `equal`, all like the first, the line is cut at fractions, so that parts
// differ by one at most.
__device__ Line line_of(int64_t total, const Shape& shape, bool equal, const Request& first) {
  if (equal && shape.max_splits == 0) {
    const SplitHeuristic heuristic =
        SplitHeuristic::of_equal(shape.batch, first.blocks, shape.parts, 0, shape.rows);
    return {heuristic, heuristic.length, 1};
  }
  SplitHeuristic heuristic = SplitHeuristic::anywhere(total, shape.parts, shape.rows);
  if (!equal && total > shape.parts) return {heuristic, total, shape.parts};
  if (equal) heuristic.move_to_ends(first.cost());
  return {heuristic, heuristic.length, 1};
}

// Where the cut of a part falls.
__device__ Boundary boundary_at(const Line& line, const PlanView& plan, const Shape& shape,
                                const int32_t* lengths, int part) {
  const int64_t at = line.cut(part);
  int32_t low = 0, high = shape.batch;  // the last request that begins at or before the cut
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (plan.costs[middle] <= at ? low : high) = middle;
  }
  const Boundary next = {low + 1, 0, 0, 0};
  if (at >= plan.costs[shape.batch]) return {shape.batch, 0, 0, 0};
  const Request request(lengths[low], shape.max_splits);
  const int64_t inside = at - plan.costs[low];
  if (request.split_blocks > 0) {
    const int64_t split = ceil_div(inside, request.split_blocks + SplitHeuristic::kOverhead);
    if (split >= request.splits()) return next;
    return {low, static_cast<int32_t>(split * request.split_blocks), static_cast<int32_t>(split),
            0};
  }
  const int32_t in_pair = line.in_pairs(request.blocks);
  const int64_t block = inside - line.overhead;
  if (block <= 0) return {low, 0, 0, in_pair};
  if (block >= request.blocks) return next;
  return {low, static_cast<int32_t>(block),
          static_cast<int32_t>(part - line.first_cut(plan.costs[low]) + 1), in_pair};
}

__global__ void __launch_bounds__(kThreads)
    plan_kernel(Shape shape, const int32_t* lengths, void* buffer) {
  __shared__ typename Scan::TempStorage scratch;
  __shared__ unsigned long long least, most;
  const PlanView plan(buffer, shape);
  const int thread = threadIdx.x;
  if (thread == 0) {
    least = ~0ull;
    most = 0;
  }
  __syncthreads();

  int64_t total = 0;
  for (int base = 0; base < shape.batch; base += kThreads) {
    const int r = base + thread;
    const bool exists = r < shape.batch;
    const Request request(exists ? lengths[r] : 0, shape.max_splits);
    int64_t start, sum;
    Scan(scratch).ExclusiveSum(exists ? request.cost() : 0, start, sum);
    if (exists) {
      plan.costs[r] = total + start;
      atomicMin(&least, static_cast<unsigned long long>(request.cost()));
      atomicMax(&most, static_cast<unsigned long long>(request.cost()));
    }
    total += sum;
    __syncthreads();
  }
  if (thread == 0) plan.costs[shape.batch] = total;
  __syncthreads();

  const Request first(shape.batch > 0 ? lengths[0] : 0, shape.max_splits);
  const Line line = line_of(total, shape, least == most && most > 0, first);
  if (line.overhead == 0) {
    const int64_t cost = line.cost(first.blocks);
    for (int r = thread; r <= shape.batch; r += kThreads) plan.costs[r] = r * cost;
    __syncthreads();
  }
  for (int part = thread; part <= shape.parts; part += kThreads) {
    plan.boundaries[part] = part == shape.parts ? Boundary{shape.batch, 0, 0, 0}
                                                : boundary_at(line, plan, shape, lengths, part);
  }

  int64_t partials = 0;
  for (int base = 0; base < shape.batch; base += kThreads) {
    const int r = base + thread;
    const bool exists = r < shape.batch;
    int64_t splits = 0;
    if (exists) {
      const Request request(lengths[r], shape.max_splits);
      splits = request.split_blocks > 0 ? request.splits()
                                        : 1 + line.cuts(plan.costs[r], request, shape.parts);
      if (request.split_blocks > 0) {
        plan.split_blocks[r] = static_cast<int32_t>(request.split_blocks);
      }
      if (splits == 1) splits = 0;
    }
    int64_t start, sum;
    Scan(scratch).ExclusiveSum(splits, start, sum);
    if (exists) plan.first_partial[r] = static_cast<int32_t>(partials + start);
    partials += sum;
    __syncthreads();
  }
  if (thread == 0) plan.first_partial[shape.batch] = static_cast<int32_t>(partials);
}

}  // namespace scheduler

Status make_plan(const Shape& shape, const int32_t* lengths, void* buffer, cudaStream_t stream) {
  scheduler::plan_kernel<<<1, scheduler::kThreads, 0, stream>>>(shape, lengths, buffer);
  return cuda::check(cudaGetLastError(), "launch of the plan kernel");
}

Status prepare_plan(int32_t device) {
  return cuda::load_kernels(device, {reinterpret_cast<const void*>(scheduler::plan_kernel)});
}

}  // namespace mla::sm90
