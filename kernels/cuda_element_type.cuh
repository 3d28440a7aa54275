// Dispatch from a DType, a run-time value, to the element type of a kernel.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/status.h"

namespace espalier {

// Calls body(T()) with the type of `dtype`.
template <typename Body>
absl::Status WithType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(float());
    case DType::kBFloat16:
      return body(__nv_bfloat16());
    case DType::kFloat16:
      return body(__half());
  }
  return InvalidArgument("dtype ", static_cast<int>(dtype));
}

}  // namespace espalier
