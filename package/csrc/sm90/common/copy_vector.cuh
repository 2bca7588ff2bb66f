// Asynchronous copies of 16 bytes to shared memory.
#pragma once

#include <cstdint>
#include <cute/arch/util.hpp>

namespace mla::sm90 {

// What a copy makes the L2 read. Whole lines are right for rows that consist of them. Rows that do
// not, and have no neighbours, as they were selected, would make it read more than is used.
enum class L2Reads { whole_lines, sectors };

// Copies 16 bytes, or zeros if `key` is `absent`. A predicate says which: from a size of 16 or 0,
// as CuTe's copy takes it, the compiler makes arithmetic.
template <L2Reads kReads, uint32_t kAbsent>
__device__ __forceinline__ void copy_vector(const void* from, void* to, uint32_t key) {
  const uint32_t address = cute::cast_smem_ptr_to_uint(to);
  if constexpr (kReads == L2Reads::whole_lines) {
    asm volatile(
        "{ .reg .pred absent; setp.eq.u32 absent, %2, %3;\n"
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, absent; }" ::"r"(address),
        "l"(from), "r"(key), "n"(kAbsent)
        : "memory");
  } else {
    asm volatile(
        "{ .reg .pred absent; setp.eq.u32 absent, %2, %3;\n"
        "cp.async.cg.shared.global [%0], [%1], 16, absent; }" ::"r"(address),
        "l"(from), "r"(key), "n"(kAbsent)
        : "memory");
  }
}

}  // namespace mla::sm90
