// Checks which launches of sparse decode compute heads in groups, and where the groups find their
// tensors; prints what is wrong and exits with 1.
#include "sm90/sparse_decode/head_groups.h"

#include <cstdio>
#include <initializer_list>

#include "cuda/device.h"

extern "C" {
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 132;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return ""; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
}

namespace {

using Problem = mla_sparse_decode_problem;
using mla::DType;
using mla::cuda::Traits;

bool has_failed = false;

void expect(bool is_right, const char* what, int64_t batch, int64_t q_len, int64_t heads) {
  if (is_right) return;
  std::printf("%s: batch %lld, q_len %lld, %lld heads\n", what, static_cast<long long>(batch),
              static_cast<long long>(q_len), static_cast<long long>(heads));
  has_failed = true;
}

Problem problem(int64_t batch, int64_t q_len, int64_t heads, int64_t topk) {
  Problem p = {};
  p.batch = batch;
  p.q_len = q_len;
  p.num_heads = heads;
  p.topk = topk;
  return p;
}

bool takes(
    const Problem& p, DType kv,
    const mla::sm90::sparse_decode::Context& context = mla::sm90::sparse_decode::kDecodeContext) {
  Traits traits = {DType::bf16, kv, DType::bf16, mla::Load::gather, mla::Schedule::rows_m64};
  if (kv == DType::fp8_ds_v4) traits.d_qk = mla::kLatent;
  bool does = false;
  if (!mla::sm90::sparse_decode::takes_head_groups(p, traits, context, &does).ok())
    has_failed = true;
  return does;
}

// At 2,048 tokens of 32 tiles and four tiles for each of 132 multiprocessors.
void check_extents() {
  const struct {
    int64_t batch, q_len, heads, topk;
    DType kv;
    bool takes;
  } cases[] = {
      {1, 1, 16, 2048, DType::fp8_ds_mla, false},
      {1, 1, 17, 2048, DType::fp8_ds_mla, false},
      {1, 1, 32, 2048, DType::fp8_ds_mla, true},
      {1, 1, 100, 2048, DType::fp8_ds_mla, false},
      {4, 1, 64, 2048, DType::fp8_ds_mla, true},
      {1, 4, 64, 2048, DType::fp8_ds_mla, true},
      {5, 1, 64, 2048, DType::fp8_ds_mla, false},
      {2, 2, 64, 2048, DType::fp8_ds_mla, false},
      {2, 1, 128, 2048, DType::fp8_ds_mla, true},
      {3, 1, 128, 2048, DType::fp8_ds_mla, false},
      {2, 1, 64, 2048, DType::bf16, true},
      {3, 1, 64, 2048, DType::bf16, false},
      {1, 1, 144, 64, DType::fp8_ds_mla, false},
      {0, 1, 64, 2048, DType::fp8_ds_mla, false},
      {1, 1, 64, 0, DType::fp8_ds_mla, false},
      {1, -1, 64, 2048, DType::fp8_ds_mla, false},
      {1, 1, 64, 132 * 64, DType::fp8_ds_mla, true},
      {1, 1, 64, 132 * 64 + 1, DType::fp8_ds_mla, false},
  };
  for (const auto& c : cases) {
    expect(takes(problem(c.batch, c.q_len, c.heads, c.topk), c.kv) == c.takes, "extents", c.batch,
           c.q_len, c.heads);
  }
  Problem limited = problem(1, 1, 64, 2048);
  limited.max_splits = 1;
  expect(!takes(limited, DType::fp8_ds_mla), "a limit of splits", 1, 1, 64);
  Problem two_caches = problem(13, 1, 64, 128);
  two_caches.extra_topk = 512;
  expect(takes(two_caches, DType::fp8_ds_v4), "a second cache", 13, 1, 64);
  two_caches.extra_topk = 513;
  expect(!takes(two_caches, DType::fp8_ds_v4), "a second cache", 13, 1, 64);
  expect(!takes(problem(1, 1, 64, 2048), DType::bf16, mla::sm90::sparse_decode::kPrefillContext),
         "prefill", 1, 1, 64);
}

// Strides are different primes, so that no two elements lie at one place.
void check_strides(int64_t batch, int64_t q_len, int64_t heads) {
  Problem p = problem(batch, q_len, heads, 64);
  p.q_latent_stride_b = 1000003, p.q_latent_stride_s = 10007, p.q_latent_stride_h = 101;
  p.out_stride_b = 1000033, p.out_stride_s = 10009, p.out_stride_h = 103;
  p.lse_stride_b = 1000037, p.lse_stride_s = 7, p.lse_stride_h = 10037;
  p.indices_stride_b = 1000039, p.indices_stride_s = 10039;
  p.extra_topk_length_stride_b = 11, p.extra_topk_length_stride_s = 3;
  const Problem grouped = mla::sm90::sparse_decode::in_head_groups(p);
  const int64_t group = mla::sm90::sparse_decode::kGroupHeads;
  expect(grouped.batch * grouped.q_len * grouped.num_heads == batch * q_len * heads, "rows", batch,
         q_len, heads);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < q_len; ++s) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t to_b = b * q_len + s, to_s = h / group, to_h = h % group;
        const bool is_right =
            b * p.q_latent_stride_b + s * p.q_latent_stride_s + h * p.q_latent_stride_h ==
                to_b * grouped.q_latent_stride_b + to_s * grouped.q_latent_stride_s +
                    to_h * grouped.q_latent_stride_h &&
            b * p.out_stride_b + s * p.out_stride_s + h * p.out_stride_h ==
                to_b * grouped.out_stride_b + to_s * grouped.out_stride_s +
                    to_h * grouped.out_stride_h &&
            b * p.lse_stride_b + s * p.lse_stride_s + h * p.lse_stride_h ==
                to_b * grouped.lse_stride_b + to_s * grouped.lse_stride_s +
                    to_h * grouped.lse_stride_h &&
            b * p.indices_stride_b + s * p.indices_stride_s ==
                to_b * grouped.indices_stride_b + to_s * grouped.indices_stride_s &&
            b * p.extra_topk_length_stride_b + s * p.extra_topk_length_stride_s ==
                to_b * grouped.extra_topk_length_stride_b +
                    to_s * grouped.extra_topk_length_stride_s;
        expect(is_right, "strides", batch, q_len, heads);
      }
    }
  }
}

}  // namespace

int main() {
  check_extents();
  check_strides(3, 1, 64);
  check_strides(1, 3, 128);
  check_strides(1, 1, 48);
  return has_failed ? 1 : 0;
}
