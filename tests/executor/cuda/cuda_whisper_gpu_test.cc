// A random Whisper of the sizes that published ones have, but for the width and
// the number of layers, on a device beside the CPU: heads of 64, which the
// tensor cores attend with, and sources of 1,500 positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "executor/cuda/cuda_executor.h"
#include "model/cuda/cuda_transformer.h"
#include "model/transformer_model.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/executor/cuda/executor_log_probs.h"
#include "tests/executor/drive.h"
#include "tests/model/feeder.h"
#include "tests/model/tiny_model.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "tests/whisper_models.h"

namespace espalier::testing {
namespace {

constexpr int kWidth = 128;
constexpr int kNumMelBins = 80;
constexpr int kNumPositions = 1500;

// Makes the tensors of a model of two layers each.
class WhisperMaker {
 public:
  TinyModel Make() {
    model_.config =
        ParseJson(*ReadFile(WhisperPath("whisper") + "/config.json", 1 << 20))
            ->as_object();
    for (const auto& [field, value] :
         {std::pair("d_model", kWidth), std::pair("num_mel_bins", kNumMelBins),
          std::pair("max_source_positions", kNumPositions),
          std::pair("encoder_attention_heads", kWidth / 64),
          std::pair("decoder_attention_heads", kWidth / 64),
          std::pair("encoder_ffn_dim", 4 * kWidth),
          std::pair("decoder_ffn_dim", 4 * kWidth),
          std::pair("encoder_layers", 2), std::pair("decoder_layers", 2)}) {
      model_.config[field] = value;
    }
    AddLinear("encoder.conv1", {kWidth, kNumMelBins, 3});
    AddLinear("encoder.conv2", {kWidth, kWidth, 3});
    Add("encoder.embed_positions.weight", {kNumPositions, kWidth}, 0, 0.5);
    Add("decoder.embed_positions.weight", {40, kWidth}, 0, 0.5);
    Add("decoder.embed_tokens.weight", {64, kWidth}, 0, 0.5);
    for (const std::string stack : {"encoder", "decoder"}) {
      AddNorm(stack + ".layer_norm");
      for (int i = 0; i < 2; ++i) {
        AddLayer(Concat(stack, ".layers.", i, "."), stack == "decoder");
      }
    }
    return std::move(model_);
  }

 private:
  void Add(const std::string& name, const std::vector<int64_t>& shape,
           float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    TinyTensor tensor = {.shape = shape, .values = {}};
    int64_t size = 1;
    for (const int64_t dim : shape) size *= dim;
    while (std::ssize(tensor.values) < size) {
      tensor.values.push_back(normal(random_));
    }
    model_.tensors.emplace("model." + name, std::move(tensor));
  }
  void AddLinear(const std::string& name, const std::vector<int64_t>& shape,
                 bool has_bias = true) {
    Add(name + ".weight", shape, 0, 0.1);
    if (has_bias) Add(name + ".bias", {shape[0]}, 0, 0.1);
  }
  void AddNorm(const std::string& name) {
    Add(name + ".weight", {kWidth}, 1, 0.1);
    Add(name + ".bias", {kWidth}, 0, 0.1);
  }
  void AddAttention(const std::string& name) {
    for (const char* const part : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
      AddLinear(Concat(name, ".", part), {kWidth, kWidth},
                /*has_bias=*/part != std::string("k_proj"));
    }
    AddNorm(name + "_layer_norm");
  }
  void AddLayer(const std::string& name, bool is_decoder) {
    AddAttention(name + "self_attn");
    if (is_decoder) AddAttention(name + "encoder_attn");
    AddLinear(name + "fc1", {4 * kWidth, kWidth});
    AddLinear(name + "fc2", {kWidth, 4 * kWidth});
    AddNorm(name + "final_layer_norm");
  }

  TinyModel model_;
  std::mt19937 random_{5};
};

// Frames that change slowly, as those of speech.
std::shared_ptr<const FeatureMatrix> SmoothFeatures(int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2);
  FeatureMatrix features = {
      .shape = {.num_rows = 2 * kNumPositions, .num_cols = kNumMelBins},
      .values = {}};
  for (int row = 0; row < features.shape.num_rows; ++row) {
    for (int col = 0; col < kNumMelBins; ++col) {
      features.values.push_back(std::sin(0.01f * row * (1 + col % 7) + seed) +
                                normal(random));
    }
  }
  return std::make_shared<const FeatureMatrix>(std::move(features));
}

std::vector<std::vector<float>> LogProbsOfWindows(Model* model,
                                                  bool has_logits) {
  Feeder feeder(model);
  std::vector<Feeder::Row> rows;
  for (int window = 0; window < 3; ++window) {
    rows.push_back({feeder.AddInput(InputOf(SmoothFeatures(window))),
                    {3, 10, 20 + window}});
  }
  std::vector<std::vector<float>> result;
  for (const LogitsRows& row : feeder.Step(rows)) {
    for (const std::vector<float>& logits : row) {
      result.push_back(has_logits ? LogProbsOf(logits) : logits);
    }
  }
  return result;
}

// The ratio of the norms.
double RelativeDistance(const std::vector<std::vector<float>>& actual,
                        const std::vector<std::vector<float>>& expected) {
  double difference = 0, norm = 0;
  for (size_t row = 0; row < expected.size(); ++row) {
    for (size_t i = 0; i < expected[row].size(); ++i) {
      difference += std::pow(double{actual[row][i]} - expected[row][i], 2);
      norm += std::pow(expected[row][i], 2);
    }
  }
  return std::sqrt(difference / norm);
}

struct WhisperCase {
  DType dtype;
  WeightFormat weights;
  double bound;
};

// Calls have room for one source, though fewer tokens are asked for, and for
// two of the three.
TEST(CudaWhisperTest, WindowsOfPublishedSizesMatchTheCpu) {
  const TempDirectory directory(FilesOf(WhisperMaker().Make()));
  for (const WhisperCase& c :
       {WhisperCase{DType::kFloat32, WeightFormat::kAsStored, 1e-5},
        WhisperCase{DType::kBFloat16, WeightFormat::kAsStored, 2e-2},
        WhisperCase{DType::kFloat16, WeightFormat::kAsStored, 3e-3},
        WhisperCase{DType::kBFloat16, WeightFormat::kFp8, 2e-2}}) {
    auto on_cpu = TransformerModel::Load(
        directory.path(), {.kv_cache_bytes = 32 << 20, .weights = c.weights},
        MakePool(2));
    ASSERT_OK(on_cpu);
    const auto expected = LogProbsOfWindows(on_cpu->get(), /*has_logits=*/true);
    for (const int max_tokens : {100, 3100}) {
      const CudaDevice device = *CudaDevice::Open(0);
      auto loaded = CudaTransformer::Load(directory.path(),
                                          {.kv_cache_bytes = 32 << 20,
                                           .dtype = c.dtype,
                                           .weights = c.weights,
                                           .max_tokens = max_tokens},
                                          device);
      ASSERT_OK(loaded);
      EXPECT_EQ((*loaded)->bounds().max_tokens,
                std::max(max_tokens, kNumPositions));
      ExecutorLogProbs on_device(*CudaExecutor::Create(*std::move(loaded), {}));
      const double distance = RelativeDistance(
          LogProbsOfWindows(&on_device, /*has_logits=*/false), expected);
      EXPECT_LE(distance, c.bound)
          << NameOf(c.dtype) << " " << NameOf(c.weights) << " " << max_tokens;
    }
  }
}

// All heads look at a part of the source.
TEST(CudaWhisperTest, AlignmentsOfPublishedSizesMatchTheCpu) {
  const TempDirectory directory(FilesOf(WhisperMaker().Make()));
  AlignmentQuery query = {.heads = {{1, 1}, {0, 0}, {1, 0}, {0, 1}},
                          .num_positions = kNumPositions - 77,
                          .num_text_tokens = 30};
  std::vector<Request> requests(2);
  for (int i = 0; i < 2; ++i) {
    requests[i].features = SmoothFeatures(i);
    requests[i].params.decoder_prompt_tokens = {3, 10, 20 + i, 40, 41, 7, 9};
    requests[i].alignment = std::make_shared<const AlignmentQuery>(query);
  }
  auto on_cpu = TransformerModel::Load(
      directory.path(), {.kv_cache_bytes = 32 << 20}, MakePool(2));
  ASSERT_OK(on_cpu);
  for (Request& request : requests) {
    ASSERT_OK(ValidateRequest((*on_cpu)->description(), &request));
  }
  const Answers expected =
      Drive(*MakeExecutor(on_cpu->get(), MakePool(2)), requests, {});
  for (const auto& [dtype, bound] : {std::pair{DType::kFloat32, 1e-5},
                                     {DType::kBFloat16, 3e-2},
                                     {DType::kFloat16, 4e-3}}) {
    auto loaded = CudaTransformer::Load(
        directory.path(), {.kv_cache_bytes = 32 << 20, .dtype = dtype},
        *CudaDevice::Open(0));
    ASSERT_OK(loaded);
    const auto steps = CudaExecutor::Create(*std::move(loaded), {});
    ASSERT_OK(steps);
    const Answers answers = Drive(**steps, requests, {.num_in_flight = 2});
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_OK(expected[i]);
      ASSERT_OK(answers[i]);
      const double distance =
          RelativeDistance({answers[i]->alignment->attention_scores},
                           {expected[i]->alignment->attention_scores});
      std::printf("%s: scores are %g off\n", NameOf(dtype).data(), distance);
      EXPECT_LE(distance, bound) << NameOf(dtype);
    }
  }
}

}  // namespace
}  // namespace espalier::testing
