// Marks what host and device both run, where a host's compiler reads it too.
#pragma once

#ifdef __CUDACC__
#define MLA_HOST_DEVICE __host__ __device__
#else
#define MLA_HOST_DEVICE
#endif
