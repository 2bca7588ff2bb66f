// Checks for which numbers of heads a decode of Hopper needs the most workspace, which
// compat.sgl_kernel relies on; prints what is wrong and exits with 1.
#include <cstdio>
#include <vector>

#include "cuda/device.h"
#include "sm90/decode/problem.h"

extern "C" {
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  *value = device == 0 ? 132 : 78;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  return cudaErrorNoDevice;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return ""; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
}

namespace {

constexpr int kMostHeads = 128;
constexpr int kTile = 16;  // of heads

// The bytes for each number of heads; the first element is not used.
std::vector<int64_t> sizes(int32_t device, int64_t batch, int64_t max_splits) {
  std::vector<int64_t> bytes(1);
  for (int heads = 1; heads <= kMostHeads; ++heads) {
    mla_decode_problem problem = {};
    problem.device = device;
    problem.batch = batch;
    problem.q_len = 1;
    problem.num_heads = heads;
    problem.max_splits = max_splits;
    mla::sm90::Shape shape;
    const bool described = mla::sm90::decode::describe_shape(problem, &shape).ok();
    bytes.push_back(described ? mla::sm90::decode::workspace_bytes(shape) : -1);
  }
  return bytes;
}

}  // namespace

int main() {
  bool has_failed = false;
  bool fewer_need_more = false;
  for (const int32_t device : {0, 1}) {
    for (const int64_t batch : {1, 2, 33, 200}) {
      for (const int64_t max_splits : {0, 1, 2, 7, 64}) {
        const std::vector<int64_t> bytes = sizes(device, batch, max_splits);
        fewer_need_more |= bytes[kMostHeads / 2] > bytes[kMostHeads];
        for (int heads = 1; heads <= kMostHeads; ++heads) {
          const int tiled = (heads + kTile - 1) / kTile * kTile;
          if (bytes[heads] >= 0 && bytes[heads] <= bytes[tiled]) continue;
          std::printf("%d heads need %lld bytes, %d heads %lld\n", heads,
                      static_cast<long long>(bytes[heads]), tiled,
                      static_cast<long long>(bytes[tiled]));
          has_failed = true;
        }
      }
    }
  }
  if (!fewer_need_more) std::printf("64 heads never need more than 128\n");
  return has_failed || !fewer_need_more;
}
