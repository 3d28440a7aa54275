// What of a model a CUDA device does not compute is refused by its name.
#include "model/cuda_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/transformer_config.h"
#include "tests/family_models.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::CudaEncoderFamilyModels;
using ::espalier::testing::DecoderFamilyModels;
using ::espalier::testing::FamilyPath;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<TransformerConfig> ReadFamily(const std::string& model) {
  return ReadTransformerConfig(FamilyPath(model));
}

TEST(CudaLimitsTest, FamiliesRunAndWhatDoesNotIsNamed) {
  for (const std::string& model : DecoderFamilyModels()) {
    EXPECT_OK(CheckCudaLimits(*ReadFamily(model))) << model;
  }
  for (const std::string& model : CudaEncoderFamilyModels()) {
    EXPECT_OK(CheckCudaLimits(*ReadFamily(model))) << model;
  }
  EXPECT_THAT(
      CheckCudaLimits(*ReadFamily("t5")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("biases by distance is not supported on CUDA yet; "
                         "use --device cpu")));
  TransformerConfig config = *ReadFamily("gemma2");
  config.head_dim = 258;
  EXPECT_THAT(CheckCudaLimits(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("head_dim must be at most 256 on a CUDA "
                                 "device, got 258")));
  config.head_dim = 256;
  EXPECT_OK(CheckCudaLimits(config));
  config.hidden_size = 16400;
  EXPECT_THAT(CheckCudaLimits(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("hidden_size must be at most 16384")));
}

// Each by itself: no family has one of them without an encoder.
TEST(CudaLimitsTest, WhatOnlyT5HasIsRefused) {
  const auto refused = [](const char* name, const auto& change) {
    TransformerConfig config = *ReadFamily("qwen2");
    EXPECT_OK(CheckCudaLimits(config));
    change(&config);
    const absl::Status status = CheckCudaLimits(config);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr(std::string(name) +
                                           " is not supported on CUDA yet")));
  };
  using C = TransformerConfig;
  refused("biases by distance",
          [](C* c) { c->positions = PositionKind::kDistances; });
  refused("a scaled head", [](C* c) { c->scales_head = true; });
}

}  // namespace
}  // namespace espalier
