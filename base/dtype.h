// DType: how numbers are stored, in files and in device memory.
#pragma once

namespace espalier {

enum class DType { kFloat32, kBFloat16, kFloat16 };

constexpr int NumBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

}  // namespace espalier
