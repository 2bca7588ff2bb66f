#pragma once

// Units that are compiled for different instruction sets include functions of other headers. Their
// inlining is forced, because an outlined copy from one of them could be linked into all.
#define MLA_ALWAYS_INLINE __attribute__((always_inline)) inline
