// A thread reads, converts and writes packs of eight elements.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace mla::cuda {

inline constexpr int kPack = 8;
inline constexpr int kVector = 16;  // bytes of the widest access

template <int kBytes>
struct alignas(kBytes < kVector ? kBytes : kVector) Raw {
  std::byte bytes[kBytes];
};

template <DType kType>
inline constexpr int kElementBytes = static_cast<int>(element_bytes(kType));

// The bytes of `kCount` elements, of which two of e2m1 share one.
template <DType kType, int kCount>
inline constexpr int kBytesOf = kType == DType::e2m1 ? kCount / 2 : kCount * kElementBytes<kType>;

template <DType kType>
using RawPack = Raw<kBytesOf<kType, kPack>>;

// The alignment that accesses assume: vectors where all memory has it, otherwise elements.
template <DType kType, bool kVectors>
inline constexpr int kAlignment = kVectors ? kVector : kElementBytes<kType>;

template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = uint8_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

template <int kBytes, int kAligned>
inline constexpr int kWordBytes = kBytes < kAligned ? kBytes : kAligned;

template <class T, int kAligned>
__device__ __forceinline__ T load(const std::byte* from) {
  constexpr int kWord = kWordBytes<sizeof(T), kAligned>;
  using Word = typename WordOf<kWord>::Type;
  T value;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T)) / kWord; ++i) {
    const Word word = reinterpret_cast<const Word*>(from)[i];
    memcpy(reinterpret_cast<std::byte*>(&value) + i * kWord, &word, kWord);
  }
  return value;
}

template <int kAligned, class T>
__device__ __forceinline__ void store(std::byte* to, const T& value) {
  constexpr int kWord = kWordBytes<sizeof(T), kAligned>;
  using Word = typename WordOf<kWord>::Type;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T)) / kWord; ++i) {
    Word word;
    memcpy(&word, reinterpret_cast<const std::byte*>(&value) + i * kWord, kWord);
    reinterpret_cast<Word*>(to)[i] = word;
  }
}

template <class T, int kBytes>
__device__ __forceinline__ T part(const Raw<kBytes>& raw, int i) {
  T value;
  memcpy(&value, raw.bytes + i * sizeof(T), sizeof(T));
  return value;
}

template <class T, int kBytes>
__device__ __forceinline__ void set_part(Raw<kBytes>& raw, int i, const T& value) {
  memcpy(raw.bytes + i * sizeof(T), &value, sizeof(T));
}

// Converts kCount values, which are a pack or half of one.
template <DType kType, int kCount>
__device__ __forceinline__ void to_fp32(const Raw<kBytesOf<kType, kCount>>& raw,
                                        float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    float2 pair;
    if constexpr (kType == DType::fp32) {
      pair = part<float2>(raw, i);
    } else if constexpr (kType == DType::fp16) {
      pair = __half22float2(part<__half2>(raw, i));
    } else if constexpr (kType == DType::bf16) {
      const auto codes = part<uint32_t>(raw, i);
      pair = make_float2(__uint_as_float(codes << 16), __uint_as_float(codes & 0xffff0000));
    } else if constexpr (kType == DType::e2m1) {
      const auto codes = part<uint8_t>(raw, i);
      pair = make_float2(e2m1_to_fp32(codes & 0xf), e2m1_to_fp32(codes >> 4));
    } else {
      const auto codes = part<__nv_fp8x2_storage_t>(raw, i);
      pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
    }
    values[2 * i] = pair.x;
    values[2 * i + 1] = pair.y;
  }
}

// Rounds to nearest even. In e4m3 and e2m1, infinities saturate as finite values do; NaN stays NaN,
// but for e2m1, which has none: it becomes 0.
template <DType kType, int kCount>
__device__ __forceinline__ Raw<kBytesOf<kType, kCount>> from_fp32(const float (&values)[kCount]) {
  Raw<kBytesOf<kType, kCount>> raw;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float2 pair = make_float2(values[2 * i], values[2 * i + 1]);
    if constexpr (kType == DType::fp32) {
      set_part(raw, i, pair);
    } else if constexpr (kType == DType::fp16) {
      set_part(raw, i, __float22half2_rn(pair));
    } else if constexpr (kType == DType::bf16) {
      set_part(raw, i, __float22bfloat162_rn(pair));
    } else if constexpr (kType == DType::e2m1) {
      const int low = fp32_to_e2m1(pair.x), high = fp32_to_e2m1(pair.y);
      set_part(raw, i, static_cast<uint8_t>(high << 4 | low));
    } else {
      set_part(raw, i, __nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3));
    }
  }
  return raw;
}

template <DType kFrom, DType kTo>
__device__ __forceinline__ RawPack<kTo> convert(const RawPack<kFrom>& raw) {
  if constexpr (kFrom == kTo) {
    return raw;
  } else {
    float values[kPack];
    to_fp32<kFrom>(raw, values);
    return from_fp32<kTo>(values);
  }
}

}  // namespace mla::cuda
