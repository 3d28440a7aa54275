// The small models with an encoder on a device: their logits and searches
// against transformers', and any batch against the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "executor/cuda/cuda_blocking_model.h"
#include "executor/host/model_executor.h"
#include "model/cuda/cuda_transformer.h"
#include "model/safetensors.h"
#include "model/transformer_model.h"
#include "tests/executor/drive.h"
#include "tests/family_models.h"
#include "tests/family_references.h"
#include "tests/few_cases.h"
#include "tests/model/batch_checks.h"
#include "tests/model/feeder.h"
#include "tests/model/stored_values.h"
#include "tests/model/twin_checks.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

// Sums are added in other orders than on the host.
constexpr double kDeviceLogitsTolerance = 1e-4;

std::shared_ptr<Model> LoadOnDevice(const std::string& name, DType dtype,
                                    int page_size, int max_tokens) {
  const auto device = CudaDevice::Open(0);
  EXPECT_OK(device);
  auto loaded = CudaTransformer::Load(FamilyPath(name),
                                      {.page_size = page_size,
                                       .kv_cache_bytes = 16 << 20,
                                       .dtype = dtype,
                                       .max_tokens = max_tokens},
                                      *device);
  EXPECT_OK(loaded);
  auto model = CudaBlockingModel::Create(*std::move(loaded));
  EXPECT_OK(model);
  return *std::move(model);
}

class CudaEncodersTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaEncodersTest,
                         ::testing::ValuesIn(EncoderFamilyModels()),
                         [](const auto& model) { return model.param; });

// Relative to the norm of all of them.
void ExpectLogitsOfTransformers(const std::string& name, DType dtype,
                                double largest, double relative) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      SafetensorsFile::Open(FamilyPath(name) + "/logits.safetensors"));
  for (const int page_size : {1, 3, 16}) {
    const auto model = LoadOnDevice(name, dtype, page_size, 256);
    for (int i = 0; i < 3; ++i) {
      const auto tokens = StoredValues<TokenId>(file, Concat("tokens.", i));
      const auto source = StoredValues<TokenId>(file, Concat("source.", i));
      const auto expected = StoredValues<float>(file, Concat("logits.", i));
      for (const int chunk : {1, 5, 1000}) {
        double worst = 0, difference = 0, norm = 0;
        size_t at = 0;
        for (const auto& row : FeedAlone(model.get(), tokens, chunk, source)) {
          for (const float logit : row) {
            const double error = std::abs(double{logit} - expected.at(at));
            worst = std::isnan(error) ? INFINITY : std::max(worst, error);
            difference += error * error;
            norm += std::pow(expected[at++], 2);
          }
        }
        EXPECT_EQ(at, expected.size());
        EXPECT_LE(worst, largest) << page_size << " " << chunk;
        EXPECT_LE(std::sqrt(difference / norm), relative)
            << page_size << " " << chunk;
      }
    }
  }
}

TEST_P(CudaEncodersTest, LogitsAreThoseOfTransformers) {
  ExpectLogitsOfTransformers(GetParam(), DType::kFloat32,
                             kDeviceLogitsTolerance, 1e-5);
}

TEST_P(CudaEncodersTest, SixteenBitsComeNear) {
  ExpectLogitsOfTransformers(GetParam(), DType::kBFloat16, INFINITY, 5e-2);
  ExpectLogitsOfTransformers(GetParam(), DType::kFloat16, INFINITY, 6e-3);
}

// Sources are read in chunks where a step has fewer tokens, preempted and read
// again where pages are few, and shared by requests of one prompt.
TEST_P(CudaEncodersTest, HypothesesAreThoseOfTransformers) {
  const auto references = ReadFamilyReferences(GetParam());
  ASSERT_GE(references.size(), 10u);
  for (const auto& [page_size, max_step_tokens] :
       Cases(std::vector<std::pair<int, int>>{{16, 200}, {3, 60}, {4, 8}},
             std::vector<std::pair<int, int>>{{4, 8}})) {
    SCOPED_TRACE(page_size);
    const auto steps = ModelExecutor::Create(
        LoadOnDevice(GetParam(), DType::kFloat32, page_size, 256), MakePool(2));
    ASSERT_OK(steps);
    std::vector<Request> requests = RequestsOf(references);
    for (Request& request : requests) {
      ASSERT_OK(ValidateRequest((*steps)->description(), &request));
    }
    const Answers answers =
        Drive(**steps, requests,
              {.scheduler = {.max_step_tokens = max_step_tokens,
                             .validate_steps = true}});
    for (size_t i = 0; i < references.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_OK(answers[i]);
      ExpectFamilyHypotheses(answers[i]->hypotheses, references[i]);
    }
  }
}

// Many sequences of many sources in one plan, which join, fork and grow, in
// calls so small that a plan takes several.
TEST_P(CudaEncodersTest, AnyBatchMatchesTheCpu) {
  for (const int max_tokens : {40, 512}) {
    auto on_cpu = TransformerModel::Load(
        FamilyPath(GetParam()), {.page_size = 4, .kv_cache_bytes = 16 << 20},
        MakePool(1));
    ASSERT_OK(on_cpu);
    const auto on_device =
        LoadOnDevice(GetParam(), DType::kFloat32, 4, max_tokens);
    Feeder cpu(on_cpu->get());
    Feeder device(on_device.get());
    std::mt19937 random(max_tokens);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    int num_sequences = 0;
    for (int step = 0; step < 12; ++step) {
      std::vector<Feeder::Row> rows;
      for (int i = 0; i < num_sequences; ++i) {
        if (below(3) > 0) {
          rows.push_back({i, RandomTokens(1 + below(3), 64, 100 * step + i)});
        }
      }
      for (int i = below(6); i >= 0; --i) {
        const auto source = SourceFor(**on_cpu, 1 + below(33), 7 * step + i);
        cpu.Add(source);
        device.Add(source);
        const int num_tokens = 1 + below(9);
        rows.push_back({num_sequences++, RandomTokens(num_tokens, 64, step),
                        below(num_tokens + 1)});
      }
      const auto expected = cpu.Step(rows);
      const auto got = device.Step(rows);
      for (size_t r = 0; r < rows.size(); ++r) {
        ASSERT_EQ(got[r].size(), expected[r].size());
        for (size_t t = 0; t < got[r].size(); ++t) {
          for (size_t i = 0; i < got[r][t].size(); ++i) {
            ASSERT_NEAR(got[r][t][i], expected[r][t][i], kDeviceLogitsTolerance)
                << "step " << step << " row " << r;
          }
        }
      }
      const int parent = below(num_sequences);
      cpu.Fork(parent);
      device.Fork(parent);
      ++num_sequences;
    }
  }
}

}  // namespace
}  // namespace espalier::testing
