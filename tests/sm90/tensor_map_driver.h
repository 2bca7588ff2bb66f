// A stand-in for the driver, whose tensor maps hold the arguments that they were encoded with, and
// checks that count failures. Include it in one source file.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "cuda/device.h"

namespace {

std::atomic<int> encoded{0};
std::atomic<bool> refuses{false};

// What a map is asked to be; here, it is what a map consists of.
struct AskedMap {
  uint64_t data;
  uint32_t type, rank;
  uint64_t extents[5], strides[4];
  uint32_t box[5];
  uint32_t swizzle;
};
static_assert(sizeof(AskedMap) <= sizeof(CUtensorMap));

template <class Number, size_t kSize>
void set(Number (&to)[kSize], std::initializer_list<std::common_type_t<Number>> numbers) {
  std::copy(numbers.begin(), numbers.end(), to);
}

CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
                const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  ++encoded;
  if (refuses) return CUDA_ERROR_INVALID_VALUE;
  AskedMap asked = {};
  asked.data = reinterpret_cast<uintptr_t>(data);
  asked.type = static_cast<uint32_t>(type);
  asked.rank = rank;
  asked.swizzle = static_cast<uint32_t>(swizzle);
  for (cuuint32_t i = 0; i < rank; ++i) {
    asked.extents[i] = extents[i];
    asked.box[i] = box[i];
    if (i > 0) asked.strides[i - 1] = strides[i - 1];
    if (steps[i] != 1) return CUDA_ERROR_INVALID_VALUE;
  }
  memset(map, 0, sizeof *map);
  memcpy(map, &asked, sizeof asked);
  return CUDA_SUCCESS;
}

std::atomic<int> failures{0};

void check(bool passed, const std::string& what) {
  if (passed) return;
  std::printf("FAILED: %s\n", what.c_str());
  ++failures;
}

void* address(uint64_t number) { return reinterpret_cast<void*>(number); }

}  // namespace

extern "C" {
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** address, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::string(name) == "cuTensorMapEncodeTiled";
  *address = known ? reinterpret_cast<void*>(encode) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaErrorNoDevice; }
const char* cudaGetErrorName(cudaError_t) { return ""; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
}
