// What the programs here share: a B200 of 148 multiprocessors behind every device, and failures.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>

#include "cuda/device.h"
#include "sm100/cutlass_mla/batch_rows.h"

extern "C" {
inline __attribute__((used)) cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 148;
  return cudaSuccess;
}
inline __attribute__((used)) cudaError_t cudaGetLastError() { return cudaSuccess; }
inline __attribute__((used)) const char* cudaGetErrorName(cudaError_t) { return ""; }
inline __attribute__((used)) const char* cudaGetErrorString(cudaError_t) { return ""; }
}

inline int failures = 0;

inline void check(bool passed, const std::string& what) {
  if (passed) return;
  std::printf("FAILED: %s\n", what.c_str());
  ++failures;
}

inline void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }
