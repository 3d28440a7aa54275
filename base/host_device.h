// ESPALIER_HOST_DEVICE marks functions that are compiled for the host and for
// the device, so that a decision that both must make alike is written once.
// These functions allocate nothing, and call no library but <cmath>, whose
// results on host and device may differ by a few ulp.
#pragma once

#ifdef __CUDACC__
#define ESPALIER_HOST_DEVICE __host__ __device__
#else
#define ESPALIER_HOST_DEVICE
#endif
