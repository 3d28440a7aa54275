// Models that are too large for a CUDA device are refused by the size's name.
#include "model/cuda_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "model/transformer_config.h"
#include "tests/family_models.h"
#include "tests/status_matchers.h"
#include "tests/whisper_models.h"

namespace espalier {
namespace {

using ::espalier::testing::FamilyModels;
using ::espalier::testing::FamilyPath;
using ::espalier::testing::StatusIs;
using ::espalier::testing::WhisperModels;
using ::espalier::testing::WhisperPath;
using ::testing::HasSubstr;

absl::StatusOr<TransformerConfig> ReadFamily(const std::string& model) {
  return ReadTransformerConfig(FamilyPath(model));
}

TEST(CudaLimitsTest, FamiliesRunAndSizesThatDoNotAreNamed) {
  for (const std::string& model : FamilyModels()) {
    if (model == "opt_projected") continue;
    EXPECT_OK(CheckCudaLimits(*ReadFamily(model))) << model;
  }
  for (const std::string& model : WhisperModels()) {
    EXPECT_OK(CheckCudaLimits(*ReadTransformerConfig(WhisperPath(model))));
  }
  EXPECT_THAT(CheckCudaLimits(*ReadFamily("opt_projected")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("word_embed_proj_dim must be hidden_size, 32, "
                                 "on a CUDA device, got 20")));
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

}  // namespace
}  // namespace espalier
