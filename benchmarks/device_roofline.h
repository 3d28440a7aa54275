// Measured peak rates of a device. A step that reads its weights and multiplies
// them cannot be faster than either rate allows.
#pragma once

#include "absl/status/statusor.h"
#include "base/cuda.h"

namespace espalier {

struct DeviceRoofline {
  double bytes_per_s = 0;  // reading device memory, many times the L2 cache
  double flops_per_s = 0;  // bf16 products of 8192 x 8192 matrices, by cuBLASLt
};

// The medians of some launches over random numbers.
// Errors: kResourceExhausted if 4 GiB of device memory are not free.
absl::StatusOr<DeviceRoofline> MeasureRates(const CudaDevice& device);

}  // namespace espalier
