// DType: how numbers are stored, in files and in device memory.
#pragma once

#include <string_view>

namespace espalier {

enum class DType { kFloat32, kBFloat16, kFloat16 };

constexpr int NumBytes(DType dtype) { return dtype == DType::kFloat32 ? 4 : 2; }

// As users write it: --dtype.
constexpr std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "f32";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat16:
      return "f16";
  }
  return "";
}

}  // namespace espalier
