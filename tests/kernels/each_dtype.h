// Tests of kernels that read logits, once for each type that logits have:
//
//   class CudaSelectTest : public ::testing::TestWithParam<DType> {};
//   INSTANTIATE_TEST_SUITE_P(DTypes, CudaSelectTest, EachDType(), DTypeName);
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/dtype.h"

namespace espalier {

inline auto EachDType() {
  return ::testing::Values(DType::kFloat32, DType::kBFloat16);
}

inline std::string DTypeName(const ::testing::TestParamInfo<DType>& test) {
  return test.param == DType::kFloat32 ? "Float32" : "BFloat16";
}

}  // namespace espalier
