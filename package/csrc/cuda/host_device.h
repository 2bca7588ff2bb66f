// Marks functions that host and device both run, in headers that a host's compiler reads too.
#pragma once

#ifdef __CUDACC__
#define MLA_HOST_DEVICE __host__ __device__
#else
#define MLA_HOST_DEVICE
#endif
