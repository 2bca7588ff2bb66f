// A payload that computes nothing: it accepts any problem of any op and remembers the last call,
// for tests of the launcher and for measuring what a launch costs.
//
// WRONG_HASH makes it report another ABI; NO_PREPARE leaves mla_prepare out.
#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "mla/abi.h"

namespace {

const mla_variant kVariants[] = {
    {"cpu_decode_qbf16_kvbf16_obf16_direct_noop", MLA_OP_DECODE},
    {"cpu_sparse_decode_qbf16_kvbf16_obf16_direct_noop", MLA_OP_SPARSE_DECODE},
    {"cpu_sparse_prefill_qbf16_kvbf16_obf16_direct_noop", MLA_OP_SPARSE_PREFILL},
    {"cpu_merge_states_ifp32_obf16", MLA_OP_MERGE_STATES},
    {"cpu_store_kv_ibf16_kvbf16", MLA_OP_STORE_KV},
    {"cpu_gather_kv_kvbf16_obf16", MLA_OP_GATHER_KV},
    {"cpu_to_global_indices", MLA_OP_TO_GLOBAL_INDICES},
};

constexpr size_t kProblemBytes[] = {
    sizeof(mla_decode_problem),
    sizeof(mla_sparse_decode_problem),
    sizeof(mla_sparse_prefill_problem),
    sizeof(mla_merge_states_problem),
    sizeof(mla_store_kv_problem),
    sizeof(mla_gather_kv_problem),
    sizeof(mla_to_global_indices_problem),
};

struct Record {
  int64_t variant;
  const void* plan;
  int64_t plan_bytes;
  const void* workspace;
  int64_t workspace_bytes;
  void* stream;
  unsigned char problem[512];
};

Record record;
int64_t plan_bytes, workspace_bytes;
mla_status answer = MLA_OK;
char last_error[256];
int told = -1, awaited = -1;  // pipes to somebody whom the next call meets

// Tells somebody that the call has begun, and waits until they answer.
mla_status meet() {
  if (told < 0) return MLA_OK;
  char byte = 0;
  pollfd answered = {awaited, POLLIN, 0};
  const bool met =
      write(told, &byte, 1) == 1 && poll(&answered, 1, 20'000) == 1 && read(awaited, &byte, 1) == 1;
  told = awaited = -1;
  return met ? MLA_OK : MLA_INTERNAL;
}

mla_status remember(int64_t variant, const void* problem) {
  record.variant = variant;
  memcpy(record.problem, problem, kProblemBytes[kVariants[variant].op]);
  return answer;
}

mla_status remember_and_meet(int64_t variant, const void* problem) {
  const mla_status status = remember(variant, problem);
  return status == MLA_OK ? meet() : status;
}

}  // namespace

extern "C" {

MLA_EXPORT const Record* noop_record() { return &record; }

MLA_EXPORT void noop_expect(int64_t plan, int64_t workspace, mla_status status, const char* error) {
  strncpy(last_error, error, sizeof last_error - 1);
  plan_bytes = plan;
  workspace_bytes = workspace;
  answer = status;
}

MLA_EXPORT void noop_meet(int to, int from) {
  told = to;
  awaited = from;
}

const char* mla_abi_hash() {
#ifdef WRONG_HASH
  return "0000000000000000";
#else
  return MLA_ABI_HASH;
#endif
}

const char* mla_version() { return "0.0.0"; }

const mla_variant* mla_registry(int64_t* count) {
  *count = sizeof kVariants / sizeof kVariants[0];
  return kVariants;
}

mla_status mla_can_run(int64_t variant, const void* problem) { return remember(variant, problem); }

mla_status mla_plan_size(int64_t, const void*, int64_t* bytes) {
  *bytes = plan_bytes;
  return MLA_OK;
}

mla_status mla_workspace_size(int64_t, const void*, int64_t* bytes) {
  *bytes = workspace_bytes;
  return MLA_OK;
}

mla_status mla_plan(int64_t variant, const void* problem, void* plan, int64_t bytes, void* stream) {
  record.plan = plan;
  record.plan_bytes = bytes;
  record.stream = stream;
  return remember_and_meet(variant, problem);
}

#ifndef NO_PREPARE
mla_status mla_prepare(int64_t variant, int32_t device) {
  record.variant = variant;
  memcpy(record.problem + offsetof(mla_decode_problem, device), &device, sizeof device);
  return answer == MLA_OK ? meet() : answer;
}
#endif

mla_status mla_launch(int64_t variant, const void* problem, const void* plan, int64_t bytes,
                      void* workspace, int64_t workspace_size, void* stream) {
  if (bytes < plan_bytes || workspace_size < workspace_bytes) return MLA_WORKSPACE;
  record.plan = plan;
  record.plan_bytes = bytes;
  record.workspace = workspace;
  record.workspace_bytes = workspace_size;
  record.stream = stream;
  return remember_and_meet(variant, problem);
}

const char* mla_last_error() { return last_error; }

}  // extern "C"
