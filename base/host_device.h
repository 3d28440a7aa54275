// ESPALIER_HOST_DEVICE marks functions that host and device both compile, so
// that what both must decide alike is written once. Such headers are plain
// C++: no allocation, no library calls.
#pragma once

#ifdef __CUDACC__
#define ESPALIER_HOST_DEVICE __host__ __device__
#else
#define ESPALIER_HOST_DEVICE
#endif
