// The small models of each family on a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/cuda/cuda_transformer.h"
#include "model/safetensors.h"
#include "model/transformer_model.h"
#include "tests/family_models.h"
#include "tests/model/cuda/cuda_plan_model.h"
#include "tests/model/feeder.h"
#include "tests/model/stored_values.h"
#include "tests/model/twin_checks.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::CudaDecoderFamilyModels;
using ::espalier::testing::CudaPlanModel;
using ::espalier::testing::FamilyPath;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::Feeder;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::RandomTokens;
using ::espalier::testing::StoredValues;

// Sums are added in other orders than on the host, and logits are up to 20.
constexpr double kDeviceLogitsTolerance = 1e-4;

CudaDevice FirstDevice() {
  const auto device = CudaDevice::Open(0);
  EXPECT_OK(device);
  return *device;
}

absl::StatusOr<std::unique_ptr<CudaTransformer>> LoadOnDevice(
    const std::string& name, DType dtype, int page_size) {
  return CudaTransformer::Load(FamilyPath(name),
                               {.page_size = page_size,
                                .kv_cache_bytes = 8 << 20,
                                .dtype = dtype,
                                .max_tokens = 256,
                                .max_logits = 256},
                               FirstDevice());
}

struct LogitsDistance {
  double largest = 0;
  double relative = 0;  // ratio of the norms
};

LogitsDistance DistanceOf(const LogitsRows& logits_rows,
                          const std::vector<float>& expected) {
  LogitsDistance distance;
  double difference = 0, norm = 0;
  size_t at = 0;
  for (const std::vector<float>& row : logits_rows) {
    for (const float logit : row) {
      const double error = std::abs(double{logit} - expected.at(at));
      distance.largest =
          std::isnan(error) ? INFINITY : std::max(distance.largest, error);
      difference += error * error;
      norm += std::pow(expected[at++], 2);
    }
  }
  EXPECT_EQ(at, expected.size());
  distance.relative = std::sqrt(difference / norm);
  return distance;
}

struct LogitsBound {
  DType dtype;
  double largest;
  double relative;
};

void ExpectLogitsOfTransformers(const std::string& name,
                                const LogitsBound& bound) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      SafetensorsFile::Open(FamilyPath(name) + "/logits.safetensors"));
  for (const int page_size : {3, 16}) {
    auto loaded = LoadOnDevice(name, bound.dtype, page_size);
    ASSERT_OK(loaded);
    CudaPlanModel model(*std::move(loaded), FirstDevice());
    for (int i = 0; i < 3; ++i) {
      const auto tokens = StoredValues<TokenId>(file, Concat("tokens.", i));
      const auto expected = StoredValues<float>(file, Concat("logits.", i));
      for (const int chunk : {1, 5, 1000}) {
        const LogitsDistance distance =
            DistanceOf(FeedAlone(&model, tokens, chunk), expected);
        EXPECT_LE(distance.largest, bound.largest) << name << " " << chunk;
        EXPECT_LE(distance.relative, bound.relative) << name << " " << chunk;
      }
    }
  }
}

TEST(CudaFamiliesTest, LogitsAreThoseOfTransformers) {
  for (const std::string& name : CudaDecoderFamilyModels()) {
    ExpectLogitsOfTransformers(name,
                               {DType::kFloat32, kDeviceLogitsTolerance, 1e-5});
  }
}

// transformers' own passes in 16 bits are half as far off.
TEST(CudaFamiliesTest, SixteenBitsComeNear) {
  for (const std::string& name : CudaDecoderFamilyModels()) {
    for (const LogitsBound& bound :
         {LogitsBound{DType::kBFloat16, INFINITY, 5e-2},
          LogitsBound{DType::kFloat16, INFINITY, 6e-3}}) {
      ExpectLogitsOfTransformers(name, bound);
    }
  }
}

// Beams of one prompt, each a token a step, beside the CPU's.
TEST(CudaFamiliesTest, BeamsThatShareAPromptMatchTheCpu) {
  for (const std::string& name : CudaDecoderFamilyModels()) {
    auto on_cpu =
        TransformerModel::Load(FamilyPath(name), {.kv_cache_bytes = 8 << 20},
                               ::espalier::testing::MakePool(1));
    ASSERT_OK(on_cpu);
    auto loaded = LoadOnDevice(name, DType::kFloat32, 16);
    ASSERT_OK(loaded);
    CudaPlanModel on_device(*std::move(loaded), FirstDevice());
    Feeder cpu(on_cpu->get());
    Feeder device(&on_device);
    const std::vector<Feeder::Row> prompt = {{0, RandomTokens(21, 64, 1), 1}};
    cpu.Add();
    device.Add();
    cpu.Step(prompt);
    device.Step(prompt);
    for (int beam = 1; beam < 6; ++beam) {
      cpu.Fork(0);
      device.Fork(0);
    }
    for (int step = 0; step < 20; ++step) {
      std::vector<Feeder::Row> rows;
      for (int beam = 0; beam < 6; ++beam) {
        rows.push_back({beam, RandomTokens(1, 64, 100 * step + beam)});
      }
      const auto expected = cpu.Step(rows);
      const auto got = device.Step(rows);
      for (size_t r = 0; r < rows.size(); ++r) {
        for (size_t i = 0; i < expected[r][0].size(); ++i) {
          ASSERT_NEAR(got[r][0][i], expected[r][0][i], kDeviceLogitsTolerance)
              << name << " step " << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace espalier
