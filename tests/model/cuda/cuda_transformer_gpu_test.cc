#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "model/cuda/cuda_transformer.h"
#include "model/transformer_model.h"
#include "tests/few_cases.h"
#include "tests/model/cuda/cuda_plan_model.h"
#include "tests/model/feeder.h"
#include "tests/model/logprobs_examples.h"
#include "tests/model/tiny_model.h"
#include "tests/model/transformer_reference.h"
#include "tests/model/twin_checks.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::CudaPlanBatch;
using ::espalier::testing::CudaPlanModel;
using ::espalier::testing::ExpectLogProbs;
using ::espalier::testing::ExpectMatchesTwin;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::Feeder;
using ::espalier::testing::FilesOf;
using ::espalier::testing::kFloat32Tolerance;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::MakeTinyModel;
using ::espalier::testing::RandomTokens;
using ::espalier::testing::ReadLogProbsExamples;
using ::espalier::testing::ReferenceLogits;
using ::espalier::testing::SmallestShape;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TempDirectory;
using ::espalier::testing::TinyModel;
using ::espalier::testing::TinyShape;
using ::espalier::testing::TinyShapes;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

CudaDevice Device() {
  const auto device = CudaDevice::Open(0);
  EXPECT_OK(device);
  return *device;
}

CudaTransformerOptions SmallOptions(DType dtype, int page_size = 16) {
  return {.page_size = page_size,
          .kv_cache_bytes = 8 << 20,
          .dtype = dtype,
          .max_tokens = 256,
          .max_logits = 256,
          .max_attention_items = 2048,
          .max_attention_partials = 4096};
}

std::unique_ptr<CudaPlanModel> LoadTiny(const TinyModel& tiny,
                                        const CudaTransformerOptions& options,
                                        bool share_runs = true) {
  const TempDirectory directory(FilesOf(tiny));
  auto transformer = CudaTransformer::Load(directory.path(), options, Device());
  EXPECT_OK(transformer);
  const CudaPlanBatch::Options batch = {
      .share_runs = share_runs,
      .max_items = options.max_attention_items,
      .max_partials = options.max_attention_partials};
  return std::make_unique<CudaPlanModel>(*std::move(transformer), Device(),
                                         batch);
}

// With sizes that are no multiples of 8.
std::vector<TinyShape> AllShapes() {
  std::vector<TinyShape> shapes = TinyShapes();
  shapes.push_back(SmallestShape(8));
  shapes.push_back({.vocab_size = 37,
                    .hidden_size = 133,
                    .intermediate_size = 203,
                    .num_heads = 2,
                    .num_kv_heads = 1,
                    .head_dim = 128});
  shapes.push_back(
      {.hidden_size = 18, .num_heads = 3, .num_kv_heads = 1, .head_dim = 6});
  return shapes;
}

TEST(CudaTransformerTest, MatchesTheTwinForEveryShapePageSizeAndChunk) {
  ExpectMatchesTwin(AllShapes(), [](const TinyModel& tiny, int page_size) {
    return LoadTiny(tiny, SmallOptions(DType::kFloat32, page_size));
  });
}

// |a - b| / |b| over all numbers.
template <typename Expected>
double Distance(const LogitsRows& logits_rows, const Expected& expected) {
  double difference = 0;
  double norm = 0;
  for (size_t t = 0; t < logits_rows.size(); ++t) {
    for (size_t i = 0; i < logits_rows[t].size(); ++i) {
      difference += std::pow(logits_rows[t][i] - expected[t][i], 2);
      norm += std::pow(expected[t][i], 2);
    }
  }
  return std::sqrt(difference / norm);
}

// An activation is rounded some six times a layer, by up to half a unit each.
TEST(CudaTransformerTest, SixteenBitsComeAsNearAsTheirRoundingAllows) {
  const std::vector<TinyShape> shapes = AllShapes();
  // Few: heads of 64 and of 128.
  for (size_t s = Cases(0, 5); s < shapes.size(); s += Cases(1, 2)) {
    const TinyModel tiny = MakeTinyModel(shapes[s], 5);
    const int num_tokens = Cases(70, 20);
    const auto tokens = RandomTokens(num_tokens, shapes[s].vocab_size, 6);
    const auto expected = ReferenceLogits(tiny, tokens);
    for (const auto& [dtype, bound] : {std::pair(DType::kBFloat16, 2e-2),
                                       std::pair(DType::kFloat16, 2.5e-3)}) {
      const auto model = LoadTiny(tiny, SmallOptions(dtype));
      for (const int chunk : {Cases(1, 5), num_tokens}) {
        EXPECT_LT(Distance(FeedAlone(model.get(), tokens, chunk), expected),
                  bound)
            << "shape " << s << " chunk " << chunk;
      }
    }
  }
}

void ExpectNear(const std::vector<LogitsRows>& got,
                const std::vector<LogitsRows>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t r = 0; r < got.size(); ++r) {
    ASSERT_EQ(got[r].size(), want[r].size());
    for (size_t t = 0; t < got[r].size(); ++t) {
      for (size_t i = 0; i < got[r][t].size(); ++i) {
        ASSERT_NEAR(got[r][t][i], want[r][t][i], kFloat32Tolerance)
            << "row " << r << " row " << t << " logit " << i;
      }
    }
  }
}

// Sequences join, grow by chunks or single tokens, fork and pause at random,
// with logits for some of the tokens; the CPU's model does the same.
TEST(CudaTransformerTest, MixedBatchesMatchTheCpu) {
  const auto pool = MakePool(1);
  const TinyModel tiny = MakeTinyModel({.dtype = "BF16"}, 7);
  const TempDirectory directory(FilesOf(tiny));
  for (const bool share_runs : {false, true}) {
    ASSERT_OK_AND_ASSIGN(
        const auto on_cpu,
        TransformerModel::Load(directory.path(),
                               {.page_size = 4, .kv_cache_bytes = 8 << 20},
                               pool));
    const auto on_device =
        LoadTiny(tiny, SmallOptions(DType::kFloat32, 4), share_runs);
    Feeder cpu(on_cpu.get());
    Feeder device(on_device.get());
    std::mt19937 random(8);
    std::vector<int> lengths;
    for (int i = 0; i < 5; ++i) {
      cpu.Add();
      lengths.push_back(0 * device.Add());
    }
    for (int step = 0; step < Cases(60, 16); ++step) {
      const int parent = random() % lengths.size();
      if (step > 10 && lengths.size() < 12 && lengths[parent] > 0) {
        cpu.Fork(parent);
        device.Fork(parent);
        lengths.push_back(lengths[parent]);
      }
      std::vector<Feeder::Row> rows;
      for (size_t i = 0; i < lengths.size(); ++i) {
        const int most = random() % 3 == 0 ? 9 : 1;
        const int count =
            std::min<int>(random() % 4 == 0 ? 0 : most, 100 - lengths[i]);
        if (count == 0) continue;
        rows.push_back({static_cast<int>(i), RandomTokens(count, 23, step),
                        static_cast<int>(random() % (count + 1))});
        lengths[i] += count;
      }
      if (rows.empty()) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectNear(device.Step(rows), cpu.Step(rows)))
          << "step " << step << " share_runs " << share_runs;
    }
  }
}

// Beams of one prompt, with one token each per step, as in a group's decode
// steps.
TEST(CudaTransformerTest, BeamsThatShareAPromptMatchTheCpu) {
  const auto pool = MakePool(1);
  const TinyModel tiny = MakeTinyModel({.max_context = 512}, 9);
  const TempDirectory directory(FilesOf(tiny));
  ASSERT_OK_AND_ASSIGN(
      const auto on_cpu,
      TransformerModel::Load(directory.path(), {.kv_cache_bytes = 8 << 20},
                             pool));
  const auto on_device = LoadTiny(tiny, SmallOptions(DType::kFloat32));
  Feeder cpu(on_cpu.get());
  Feeder device(on_device.get());
  const std::vector<Feeder::Row> prompt = {{0, RandomTokens(200, 23, 10), 1}};
  cpu.Add();
  device.Add();
  ASSERT_NO_FATAL_FAILURE(ExpectNear(device.Step(prompt), cpu.Step(prompt)));
  for (int beam = 1; beam < 8; ++beam) {
    cpu.Fork(0);
    device.Fork(0);
  }
  for (int step = 0; step < Cases(40, 6); ++step) {
    std::vector<Feeder::Row> rows;
    for (int beam = 0; beam < 8; ++beam) {
      rows.push_back({beam, RandomTokens(1, 23, 100 * step + beam)});
    }
    ASSERT_NO_FATAL_FAILURE(ExpectNear(device.Step(rows), cpu.Step(rows)))
        << "step " << step;
  }
}

TEST(CudaTransformerTest, LogProbsOfReferenceSequencesMatch) {
  auto transformer = CudaTransformer::Load(
      SourcePath("models/en-fr"),
      {.kv_cache_bytes = 64 << 20, .dtype = DType::kFloat32, .max_tokens = 512},
      Device());
  ASSERT_OK(transformer);
  CudaPlanModel model(*std::move(transformer), Device());
  const auto examples = ReadLogProbsExamples();
  ASSERT_EQ(examples.size(), 24u);
  for (const auto& example :
       std::span(examples).first(Cases(examples.size(), size_t{1}))) {
    const int num_tokens = static_cast<int>(example.tokens.size());
    for (const int chunk : {num_tokens, 3, 1}) {
      ExpectLogProbs(FeedAlone(&model, example.tokens, chunk), example, 1e-4);
    }
  }
}

// A plan of decoding rows over prompts that were fed before.
StepPlan DecodePlan(int num_rows, int position, int page_size) {
  StepPlan plan;
  const int num_pages = position / page_size + 1;
  for (int r = 0; r < num_rows; ++r) {
    plan.rows.push_back({.sequence = SequenceId{r},
                         .first_token = r,
                         .num_tokens = 1,
                         .first_position = position,
                         .num_logits = 1,
                         .first_logits = r});
    plan.tokens.push_back(r);
    for (int i = 0; i < num_pages; ++i) {
      plan.page_indices.push_back(PageId{r * num_pages + i});
    }
    plan.page_indptr.push_back((r + 1) * num_pages);
  }
  plan.num_logits = num_rows;
  return plan;
}

TEST(CudaTransformerTest, ACapturedCallReplaysToTheSameBits) {
  const auto model =
      LoadTiny(MakeTinyModel({}, 11), SmallOptions(DType::kBFloat16));
  const StepPlan plan = DecodePlan(5, 37, 16);
  std::vector<float> eager(5 * 23);
  ASSERT_OK(model->Forward(plan, eager));

  ASSERT_OK_AND_ASSIGN(
      const CudaPlanBatch batch,
      CudaPlanBatch::Create(plan, model->transformer(), Device(), {}));
  ASSERT_OK_AND_ASSIGN(const auto logits, DeviceBuffer<float>::Create(5 * 23));
  ASSERT_OK_AND_ASSIGN(const CudaStream stream, CudaStream::Create());
  ASSERT_OK_AND_ASSIGN(const CudaGraph graph, CaptureGraph(stream.get(), [&] {
                         return model->transformer().Enqueue(
                             batch.view(), logits.data(), stream.get());
                       }));
  for (int replay = 0; replay < 3; ++replay) {
    ASSERT_EQ(
        cudaMemsetAsync(logits.data(), 0xFF, logits.size_bytes(), stream.get()),
        cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(graph.get(), stream.get()), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
    std::vector<float> replayed(5 * 23);
    ASSERT_EQ(cudaMemcpy(replayed.data(), logits.data(), logits.size_bytes(),
                         cudaMemcpyDefault),
              cudaSuccess);
    EXPECT_EQ(replayed, eager);
  }
}

TEST(CudaTransformerTest, TheDescriptionIsWhatConfigsAndOptionsSay) {
  TinyModel tiny = MakeTinyModel({}, 13);
  const auto model = LoadTiny(tiny, SmallOptions(DType::kFloat16, 8));
  const ModelDescription& description = model->description();
  EXPECT_EQ(description.vocab_size, 23);
  EXPECT_EQ(description.max_context, 128);
  EXPECT_EQ(description.eos_token_ids, (std::vector<TokenId>{2, 5}));
  EXPECT_EQ(description.page_size, 8);
  // Two layers of keys and values, 8 tokens of 2 heads of 16 numbers.
  const int num_pages = (8 << 20) / (2 * 2 * 8 * 2 * 16 * 2);
  EXPECT_EQ(description.num_pages, num_pages - 1);
  EXPECT_EQ(model->transformer().null_page(), PageId{num_pages - 1});
  EXPECT_EQ(model->transformer().cache().num_pages, num_pages);
}

TEST(CudaTransformerTest, WhatTheDeviceCannotDoIsNamed) {
  const auto load = [](const TinyModel& tiny,
                       const CudaTransformerOptions& options) {
    const TempDirectory directory(FilesOf(tiny));
    return CudaTransformer::Load(directory.path(), options, Device()).status();
  };
  const TinyModel tiny = MakeTinyModel({}, 14);
  CudaTransformerOptions options = SmallOptions(DType::kFloat32);
  EXPECT_THAT(load(MakeTinyModel({.head_dim = 258}, 14), options),
              StatusIs(kInvalid, HasSubstr("head_dim must be at most 256")));
  options.page_size = 0;
  EXPECT_THAT(load(tiny, options),
              StatusIs(kInvalid, HasSubstr("page_size must be in [1, 4096]")));
  options = SmallOptions(DType::kFloat32);
  options.kv_cache_bytes = 2 * 8192 - 1;
  EXPECT_THAT(load(tiny, options),
              StatusIs(kInvalid, HasSubstr("must hold two pages of 8192")));
  options.kv_cache_bytes = int64_t{1} << 44;
  EXPECT_THAT(load(tiny, options),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("bytes of device memory")));

  TinyModel large = MakeTinyModel({.dtype = "BF16"}, 14);
  large.tensors["model.layers.1.mlp.up_proj.weight"].values[7] = 131072.0f;
  EXPECT_THAT(
      load(large, SmallOptions(DType::kFloat16)),
      StatusIs(kInvalid, HasSubstr("layer 1: up_proj: float16 cannot hold")));
  EXPECT_OK(load(large, SmallOptions(DType::kBFloat16)));
}

TEST(CudaTransformerTest, ACallBeyondTheBoundsIsRefused) {
  const auto model =
      LoadTiny(MakeTinyModel({}, 15), SmallOptions(DType::kFloat32));
  CudaBatch batch = {.num_tokens = 257};
  EXPECT_THAT(model->transformer().Enqueue(batch, nullptr, nullptr),
              StatusIs(kInvalid, HasSubstr("257 tokens, the limit is 256")));
  batch = {.num_tokens = 1, .num_logits = 300};
  EXPECT_THAT(model->transformer().Enqueue(batch, nullptr, nullptr),
              StatusIs(kInvalid, HasSubstr("300 rows of logits")));
  EXPECT_OK(model->transformer().Enqueue({}, nullptr, nullptr));
}

// The model that loaded the weights is gone when others use them.
TEST(CudaTransformerTest, ModelsOnSharedWeightsEqualLoadedOnes) {
  const TempDirectory directory(FilesOf(MakeTinyModel({}, /*seed=*/3)));
  const auto load = [&](int page_size) {
    auto loaded = CudaTransformer::Load(
        directory.path(), SmallOptions(DType::kFloat32, page_size), Device());
    EXPECT_OK(loaded);
    return *std::move(loaded);
  };
  const auto feed = [&](std::unique_ptr<CudaTransformer> transformer) {
    CudaPlanModel model(std::move(transformer), Device());
    return FeedAlone(&model, RandomTokens(20, 60, 16), 7);
  };
  const std::shared_ptr<const CudaTransformerWeights> weights =
      load(16)->weights();
  for (const int page_size : {1, 5, 16, 32}) {
    auto other = CudaTransformer::Create(
        weights, SmallOptions(DType::kFloat32, page_size), Device());
    ASSERT_OK(other);
    EXPECT_EQ((*other)->description().page_size, page_size);
    EXPECT_EQ(feed(*std::move(other)), feed(load(page_size))) << page_size;
  }
  EXPECT_THAT(CudaTransformer::Create(
                  weights, SmallOptions(DType::kBFloat16, 16), Device())
                  .status(),
              StatusIs(kInvalid, HasSubstr("dtype must be f32")));
}

TEST(CudaTransformerTest, RandomWeightsComputeTheSameEveryTime) {
  TransformerConfig config;
  config.vocab_size = 100;
  config.hidden_size = 72;
  config.layers.assign(2, {.intermediate_size = 100});
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 64;
  config.max_context = 128;
  std::vector<LogitsRows> results;
  for (int i = 0; i < 2; ++i) {
    auto transformer = CudaTransformer::Random(
        config, SmallOptions(DType::kBFloat16), Device());
    ASSERT_OK(transformer);
    CudaPlanModel model(*std::move(transformer), Device());
    results.push_back(FeedAlone(&model, RandomTokens(20, 100, 16), 20));
  }
  EXPECT_EQ(results[0], results[1]);
  float largest = 0;
  for (const float logit : results[0][19]) {
    ASSERT_TRUE(std::isfinite(logit));
    largest = std::max(largest, std::abs(logit));
  }
  EXPECT_GT(largest, 0.01f);
}

}  // namespace
}  // namespace espalier
