// The small models with an encoder, of tokens or features, on a device: their
// log-probabilities and searches against transformers', and batches and
// mixtures of requests against the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "executor/cuda/cuda_executor.h"
#include "executor/host/model_executor.h"
#include "model/cuda/cuda_transformer.h"
#include "model/safetensors.h"
#include "model/transformer_model.h"
#include "speech/token_times.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/executor/cuda/executor_log_probs.h"
#include "tests/executor/drive.h"
#include "tests/executor/mixture_requests.h"
#include "tests/family_models.h"
#include "tests/family_references.h"
#include "tests/few_cases.h"
#include "tests/model/batch_checks.h"
#include "tests/model/feeder.h"
#include "tests/model/stored_values.h"
#include "tests/model/twin_checks.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "tests/whisper_models.h"

namespace espalier::testing {
namespace {

// Sums are added in other orders than on the host.
constexpr double kDeviceLogitsTolerance = 1e-4;

bool IsWhisper(const std::string& name) {
  return std::ranges::count(WhisperModels(), name) > 0;
}

// All families, and the models whose sources are features.
std::vector<std::string> EncoderModels() {
  std::vector<std::string> names = EncoderFamilyModels();
  names.insert(names.end(), WhisperModels().begin(), WhisperModels().end());
  return names;
}

std::string EncoderModelPath(const std::string& name) {
  return IsWhisper(name) ? WhisperPath(name) : FamilyPath(name);
}

std::shared_ptr<const EncoderInput> StoredInput(const SafetensorsFile& file,
                                                const std::string& name,
                                                int i) {
  if (IsWhisper(name)) return InputOf(StoredFeatures(file, i));
  return std::make_shared<const EncoderInput>(
      StoredValues<TokenId>(file, Concat("source.", i)));
}

std::vector<FamilyReference> EncoderReferences(const std::string& name) {
  return IsWhisper(name) ? ReadWhisperReferences(name)
                         : ReadFamilyReferences(name);
}

std::shared_ptr<const FeatureMatrix> AnyFeatures(const FeatureShape& shape,
                                                 int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  FeatureMatrix features = {.shape = shape, .values = {}};
  features.values.resize(size_t(shape.num_rows) * shape.num_cols);
  for (float& value : features.values) value = normal(random);
  return std::make_shared<const FeatureMatrix>(std::move(features));
}

// Tokens, or features, of which all sources are equally long.
std::shared_ptr<const EncoderInput> AnyInput(const Model& model, int length,
                                             int seed) {
  const EncoderDescription& encoder = *model.description().encoder;
  if (encoder.features) return InputOf(AnyFeatures(*encoder.features, seed));
  return std::make_shared<const EncoderInput>(SourceFor(model, length, seed));
}

struct OnDeviceOptions {
  DType dtype = DType::kFloat32;
  int page_size = 16;
  int max_tokens = 256;
  int64_t kv_cache_bytes = 16 << 20;
  int64_t host_cache_bytes = 0;
};

std::shared_ptr<CudaExecutor> LoadOnDevice(const std::string& name,
                                           const OnDeviceOptions& options) {
  const auto device = CudaDevice::Open(0);
  EXPECT_OK(device);
  auto loaded = CudaTransformer::Load(EncoderModelPath(name),
                                      {.page_size = options.page_size,
                                       .kv_cache_bytes = options.kv_cache_bytes,
                                       .dtype = options.dtype,
                                       .max_tokens = options.max_tokens},
                                      *device);
  EXPECT_OK(loaded);
  auto steps = CudaExecutor::Create(
      *std::move(loaded), {.host_cache_bytes = options.host_cache_bytes});
  EXPECT_OK(steps);
  return *std::move(steps);
}

class CudaEncodersTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaEncodersTest,
                         ::testing::ValuesIn(EncoderModels()),
                         [](const auto& model) { return model.param; });

// Directories of CTranslate2 are models of these families, too: that they are
// read right is seen without mixtures, for which their contexts are too short.
std::vector<std::string> ModelsForMixtures() {
  std::vector<std::string> names = EncoderModels();
  std::erase_if(names, [](const std::string& name) {
    return name.starts_with("ctranslate2_");
  });
  return names;
}

class CudaEncoderMixturesTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaEncoderMixturesTest,
                         ::testing::ValuesIn(ModelsForMixtures()),
                         [](const auto& model) { return model.param; });

// Relative to the norm of all logits, as log-probabilities share an offset.
void ExpectLogProbsOfTransformers(const std::string& name, DType dtype,
                                  double largest, double relative) {
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsFile file,
      SafetensorsFile::Open(EncoderModelPath(name) + "/logits.safetensors"));
  for (const int page_size : {1, 3, 16}) {
    ExecutorLogProbs model(
        LoadOnDevice(name, {.dtype = dtype, .page_size = page_size}));
    const int vocab_size = model.description().vocab_size;
    for (int i = 0; i < 3; ++i) {
      const auto tokens = StoredValues<TokenId>(file, Concat("tokens.", i));
      const auto source = StoredInput(file, name, i);
      const auto stored = StoredValues<float>(file, Concat("logits.", i));
      for (const int chunk : {1, 5, 1000}) {
        double worst = 0, difference = 0, norm = 0;
        size_t at = 0;
        for (const auto& row : FeedAlone(&model, tokens, chunk, source)) {
          const std::vector<float> expected =
              LogProbsOf(std::span(stored).subspan(at, vocab_size));
          for (int token = 0; token < vocab_size; ++token) {
            // A token that is never generated.
            if (std::isinf(stored[at + token])) {
              EXPECT_EQ(row[token], expected[token]) << token;
              continue;
            }
            const double error = std::abs(double{row[token]} - expected[token]);
            worst = std::isnan(error) ? INFINITY : std::max(worst, error);
            difference += error * error;
            norm += std::pow(stored[at + token], 2);
          }
          at += vocab_size;
        }
        EXPECT_EQ(at, stored.size());
        EXPECT_LE(worst, largest) << page_size << " " << chunk;
        EXPECT_LE(std::sqrt(difference / norm), relative)
            << page_size << " " << chunk;
      }
    }
  }
}

TEST_P(CudaEncodersTest, LogProbsAreThoseOfTransformers) {
  ExpectLogProbsOfTransformers(GetParam(), DType::kFloat32,
                               kDeviceLogitsTolerance, 1e-5);
}

TEST_P(CudaEncodersTest, SixteenBitsComeNear) {
  ExpectLogProbsOfTransformers(GetParam(), DType::kBFloat16, INFINITY, 5e-2);
  ExpectLogProbsOfTransformers(GetParam(), DType::kFloat16, INFINITY, 6e-3);
}

// Sources are read beyond the tokens of a step where it has fewer, preempted
// and read again, or saved, where pages are few, and shared by requests of one
// prompt.
TEST_P(CudaEncodersTest, HypothesesAreThoseOfTransformers) {
  struct Case {
    int page_size;
    int max_step_tokens;
    int num_in_flight;
    int64_t kv_cache_bytes;
    int64_t host_cache_bytes;
  };
  const auto references = EncoderReferences(GetParam());
  ASSERT_GE(references.size(), 10u);
  for (const Case& tested :
       Cases(std::vector<Case>{{16, 200, 2, 16 << 20, 0},
                               {3, 60, 2, 1 << 20, 1 << 20},
                               {3, 60, 2, 1 << 19, 0},
                               {4, 8, 1, 16 << 20, 0}},
             std::vector<Case>{{4, 8, 2, 16 << 20, 0}})) {
    SCOPED_TRACE(Concat("pages of ", tested.page_size, ", ",
                        tested.max_step_tokens, " tokens a step"));
    const auto steps =
        LoadOnDevice(GetParam(), {.page_size = tested.page_size,
                                  .kv_cache_bytes = tested.kv_cache_bytes,
                                  .host_cache_bytes = tested.host_cache_bytes});
    std::vector<Request> requests = RequestsOf(references);
    for (Request& request : requests) {
      ASSERT_OK(ValidateRequest(steps->description(), &request));
    }
    const Answers answers =
        Drive(*steps, requests,
              {.num_in_flight = tested.num_in_flight,
               .scheduler = {.max_step_tokens = tested.max_step_tokens,
                             .validate_steps = true}});
    for (size_t i = 0; i < references.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_OK(answers[i]);
      ExpectFamilyHypotheses(answers[i]->hypotheses, references[i]);
    }
    const CudaExecutorFigures figures = steps->figures();
    EXPECT_GT(figures.num_graph_launches, figures.num_steps / 4);
    std::printf("%s: %ld steps, %ld from %d graphs\n", GetParam().c_str(),
                figures.num_steps, figures.num_graph_launches,
                figures.num_graphs);
  }
}

// Many sequences of many sources in one plan, which join, fork and grow; where
// calls of the model are small, sources of a plan take several.
TEST_P(CudaEncoderMixturesTest, AnyBatchMatchesTheCpu) {
  constexpr int kMaxRows = 40;  // that no selection is of, and tokens of a step
  for (const int max_tokens : {40, 512}) {
    auto on_cpu = TransformerModel::Load(
        EncoderModelPath(GetParam()),
        {.page_size = 4, .kv_cache_bytes = 16 << 20}, MakePool(1));
    ASSERT_OK(on_cpu);
    ExecutorLogProbs on_device(
        LoadOnDevice(GetParam(), {.page_size = 4, .max_tokens = max_tokens}));
    Feeder cpu(on_cpu->get());
    Feeder device(&on_device);
    std::mt19937 random(max_tokens);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    int num_sequences = 0;
    for (int step = 0; step < 12; ++step) {
      std::vector<Feeder::Row> rows;
      int num_tokens_left = kMaxRows;
      for (int i = below(6); i >= 0; --i) {
        const auto source = AnyInput(**on_cpu, 1 + below(33), 7 * step + i);
        cpu.AddInput(source);
        device.AddInput(source);
        const int num_tokens = std::min(1 + below(9), num_tokens_left - i);
        num_tokens_left -= num_tokens;
        rows.push_back({num_sequences++, RandomTokens(num_tokens, 64, step),
                        below(num_tokens + 1)});
      }
      for (int i = num_sequences - static_cast<int>(rows.size()) - 1; i >= 0;
           --i) {
        const int num_tokens = 1 + below(3);
        if (below(3) == 0 || num_tokens > num_tokens_left) continue;
        num_tokens_left -= num_tokens;
        rows.push_back({i, RandomTokens(num_tokens, 64, 100 * step + i)});
      }
      const auto expected = cpu.Step(rows);
      const auto got = device.Step(rows);
      for (size_t r = 0; r < rows.size(); ++r) {
        ASSERT_EQ(got[r].size(), expected[r].size());
        for (size_t t = 0; t < got[r].size(); ++t) {
          const std::vector<float> log_probs = LogProbsOf(expected[r][t]);
          for (size_t i = 0; i < got[r][t].size(); ++i) {
            ASSERT_NEAR(got[r][t][i], log_probs[i], kDeviceLogitsTolerance)
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

// Every way to decode with every kind of processor, and tokens that are forced:
// requests that are good ones of a model without an encoder and EOS ids, as far
// as they are of this one, too.
std::vector<Request> AnyEncoderRequests(int count, uint32_t seed,
                                        const ModelDescription& model) {
  ModelDescription plain = model;
  plain.encoder.reset();
  plain.eos_token_ids.clear();
  const bool has_features = model.encoder && model.encoder->features;
  const MixtureLimits limits = {.max_samples = 12,
                                .max_beams = 10,
                                // None is left where there are features.
                                .max_prompt_tokens = has_features ? 4 : 40,
                                .max_new_tokens = FewCases() ? 3 : 12,
                                .speculates = true};
  std::mt19937 random(seed);
  std::vector<Request> requests;
  while (std::ssize(requests) < count) {
    Request request = AnyMixtureRequest(random, plain, limits);
    GenerationParams& params = request.params;
    params.stop.clear();  // there is no tokenizer
    params.include_stop = false;
    params.prompt_logprobs.reset();
    params.logprobs_start = 0;
    if (!params.allowed_sequences && random() % 3 == 0) {
      params.forced_bos_token_id = 10 + random() % 50;
    }
    if (!params.allowed_sequences && random() % 3 == 0) {
      params.forced_eos_token_id = {static_cast<int64_t>(10 + random() % 50),
                                    2};
    }
    if (has_features) {
      request.prompt_tokens.clear();
      request.features = AnyFeatures(*model.encoder->features, random());
    }
    if (ValidateRequest(model, &request).ok()) requests.push_back(request);
  }
  return requests;
}

// Some share their source with others.
void ShareSources(std::vector<Request>* requests) {
  for (size_t i = 1; i < requests->size(); i += 3) {
    (*requests)[i].prompt_tokens = (*requests)[i - 1].prompt_tokens;
    (*requests)[i].features = (*requests)[i - 1].features;
  }
}

void ExpectAnyRequestsMatchTheHost(const std::string& name,
                                   const OnDeviceOptions& options,
                                   int max_step_tokens, uint32_t seed) {
  auto on_cpu = TransformerModel::Load(
      EncoderModelPath(name), {.kv_cache_bytes = 16 << 20}, MakePool(1));
  ASSERT_OK(on_cpu);
  const auto on_host = MakeExecutor(on_cpu->get(), MakePool(1));
  const auto on_device = LoadOnDevice(name, options);
  std::vector<Request> requests =
      AnyEncoderRequests(Cases(60, 12), seed, on_device->description());
  ShareSources(&requests);
  std::vector<Request> plain = requests;
  for (Request& request : plain) request.params.speculate.reset();
  const Answers expected = Drive(*on_host, plain, {});
  const Answers actual =
      Drive(*on_device, requests,
            {.num_in_flight = 2,
             .scheduler = {.max_running = 24,
                           .max_step_tokens = max_step_tokens,
                           .validate_steps = true}});
  Comparison comparison;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string what = Concat("request ", i);
    // The sampled tokens depend on the drafts, and so does whether any are
    // possible after them.
    const auto& speculate = requests[i].params.speculate;
    if (speculate && speculate->mode == SpeculationMode::kRejection) {
      EXPECT_TRUE(actual[i].ok() ||
                  absl::IsFailedPrecondition(actual[i].status()))
          << what << ": " << actual[i].status();
      continue;
    }
    ASSERT_EQ(actual[i].status().code(), expected[i].status().code())
        << what << ": " << actual[i].status() << " " << expected[i].status();
    if (!actual[i].ok()) continue;
    comparison.Add(expected[i]->hypotheses, actual[i]->hypotheses, what);
  }
  comparison.Print(name.c_str());
  // Hypotheses whose scores are equal but for rounding change places, two or
  // more at a time.
  EXPECT_LE(comparison.num_with_swaps, 1);
  EXPECT_GT(comparison.num_hypotheses, Cases(100, 8));
}

TEST_P(CudaEncoderMixturesTest, AnyRequestsMatchTheHost) {
  ExpectAnyRequestsMatchTheHost(GetParam(), {}, 128, 1);
}

// Pages are few: groups are preempted and resumed, pages of theirs saved.
TEST_P(CudaEncoderMixturesTest, AnyRequestsInFewPagesMatchTheHost) {
  ExpectAnyRequestsMatchTheHost(GetParam(),
                                {.page_size = 3,
                                 .max_tokens = 64,
                                 .kv_cache_bytes = 1 << 19,
                                 .host_cache_bytes = 1 << 19},
                                40, 2);
}

// The searches of openai's references, without their biases, which a GPU does
// not have beside times, and samples; alone, and together in few pages.
TEST(CudaTimestampsTest, HypothesesAreThoseOfTheHost) {
  std::vector<Request> requests =
      RequestsOf(ReadWhisperReferences("whisper", "/timestamps.jsonl"));
  ASSERT_GE(requests.size(), 40u);
  auto on_cpu = TransformerModel::Load(
      WhisperPath("whisper"), {.kv_cache_bytes = 16 << 20}, MakePool(1));
  ASSERT_OK(on_cpu);
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerationParams& params = requests[i].params;
    params.logit_bias.clear();
    params.renormalize_logits = true;
    if (i % 5 == 0) params.timestamps.reset();
    if (i % 3 > 0) continue;
    params.num_beams = 1;
    params.early_stopping = {};
    params.patience = 1;
    params.length_counts_eos = true;
    params.do_sample = true;
    params.temperature = 0.8;
    params.seed = i;
    params.best_of = 5;
    params.num_return_sequences = 5;
  }
  requests.resize(Cases(requests.size(), size_t{12}));
  for (Request& request : requests) {
    ASSERT_OK(ValidateRequest((*on_cpu)->description(), &request));
  }
  const Answers expected =
      Drive(*MakeExecutor(on_cpu->get(), MakePool(1)), requests, {});
  for (const bool has_few_pages : {false, true}) {
    SCOPED_TRACE(has_few_pages);
    const auto steps = LoadOnDevice(
        "whisper", {.page_size = 3,
                    .max_tokens = 64,
                    .kv_cache_bytes = has_few_pages ? 1 << 19 : 16 << 20});
    const DriveOptions options = {
        .num_in_flight = has_few_pages ? 1 : 2,
        .scheduler = {.max_step_tokens = 60, .validate_steps = true}};
    const Answers together = Drive(*steps, requests, options);
    Comparison comparison;
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_OK(expected[i]);
      ASSERT_OK(together[i]);
      const Answers alone = Drive(*steps, {requests[i]}, options);
      ASSERT_OK(alone[0]);
      const std::string what = Concat("request ", i);
      comparison.Add(expected[i]->hypotheses, together[i]->hypotheses, what);
      comparison.Add(expected[i]->hypotheses, alone[0]->hypotheses, what);
    }
    comparison.Print("times");
    EXPECT_LE(comparison.num_with_swaps, 1);
  }
}

class CudaAlignmentTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, CudaAlignmentTest,
                         ::testing::ValuesIn(WhisperModels()),
                         [](const auto& model) { return model.param; });

// Ask for some heads, the last layer's first, and some positions.
std::vector<Request> AlignmentRequests(const std::string& name,
                                       const EncoderDescription& encoder) {
  const auto file =
      SafetensorsFile::Open(EncoderModelPath(name) + "/logits.safetensors");
  EXPECT_OK(file);
  const AttentionShape& shape = *encoder.reported_attention;
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    AlignmentQuery query = {.num_positions = encoder.max_source_tokens - i % 3,
                            .num_text_tokens = i % 2 == 0 ? 20 : 1};
    for (int layer = shape.num_layers - 1; layer >= 0; --layer) {
      for (int head = i % 2; head < shape.num_heads; ++head) {
        query.heads.push_back({layer, head});
      }
    }
    Request& request = requests.emplace_back();
    request.features = StoredFeatures(*file, i % kNumWhisperFeatures);
    std::mt19937 random(i);
    for (int t = 0; t < 3 + 4 * i; ++t) {
      request.params.decoder_prompt_tokens.push_back(4 + random() % 50);
    }
    request.alignment = std::make_shared<const AlignmentQuery>(query);
  }
  return requests;
}

// The positions that words are timed by.
std::vector<int> TimesOf(const Request& request, const Alignment& alignment) {
  const AlignmentQuery& query = *request.alignment;
  const auto num_tokens = static_cast<int>(alignment.log_probs.size());
  return AlignRows(
      AlignmentMatrix({.values = alignment.attention_scores,
                       .num_tokens = num_tokens,
                       .num_heads = static_cast<int>(query.heads.size()),
                       .num_positions = query.num_positions},
                      0, num_tokens),
      num_tokens, query.num_positions);
}

// Alone, and beside searches that share their sources and take pages away, in
// steps that feed parts of them.
TEST_P(CudaAlignmentTest, IsThatOfTheHost) {
  auto on_cpu = TransformerModel::Load(
      EncoderModelPath(GetParam()), {.kv_cache_bytes = 16 << 20}, MakePool(1));
  ASSERT_OK(on_cpu);
  std::vector<Request> requests =
      AlignmentRequests(GetParam(), *(*on_cpu)->description().encoder);
  for (Request& request : requests) {
    ASSERT_OK(ValidateRequest((*on_cpu)->description(), &request));
  }
  const Answers expected =
      Drive(*MakeExecutor(on_cpu->get(), MakePool(1)), requests, {});
  std::vector<Request> mixed = requests;
  for (Request& search : RequestsOf(EncoderReferences(GetParam()))) {
    ASSERT_OK(ValidateRequest((*on_cpu)->description(), &search));
    mixed.push_back(std::move(search));
  }
  int num_tokens = 0;
  int num_other_times = 0;
  double worst = 0;
  for (const bool is_alone : {true, false}) {
    SCOPED_TRACE(is_alone);
    const auto steps = LoadOnDevice(
        GetParam(), {.page_size = 3,
                     .max_tokens = 64,
                     .kv_cache_bytes = is_alone ? 16 << 20 : 1 << 19});
    const Answers answers =
        Drive(*steps, is_alone ? requests : mixed,
              {.num_in_flight = 2,
               .scheduler = {.max_step_tokens = is_alone ? 60 : 17,
                             .validate_steps = true}});
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_OK(expected[i]);
      ASSERT_OK(answers[i]);
      ASSERT_TRUE(answers[i]->alignment.has_value());
      const Alignment& host = *expected[i]->alignment;
      const Alignment& device = *answers[i]->alignment;
      ASSERT_EQ(device.log_probs.size(), host.log_probs.size());
      for (size_t t = 0; t < host.log_probs.size(); ++t) {
        EXPECT_NEAR(device.log_probs[t], host.log_probs[t],
                    kDeviceLogitsTolerance)
            << t;
      }
      ASSERT_EQ(device.attention_scores.size(), host.attention_scores.size());
      for (size_t s = 0; s < host.attention_scores.size(); ++s) {
        const double error =
            std::abs(device.attention_scores[s] - host.attention_scores[s]);
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
      }
      const std::vector<int> times = TimesOf(requests[i], device);
      const std::vector<int> host_times = TimesOf(requests[i], host);
      for (size_t t = 0; t < times.size(); ++t) {
        num_other_times += times[t] != host_times[t];
      }
      num_tokens += static_cast<int>(times.size());
    }
  }
  std::printf("%s: %d tokens, %d with another time, scores within %g\n",
              GetParam().c_str(), num_tokens, num_other_times, worst);
  EXPECT_LE(worst, kDeviceLogitsTolerance);
  EXPECT_GT(num_tokens, 200);
  // Paths of nearly equal sums.
  EXPECT_LE(num_other_times, num_tokens / 50);
}

// Forced tokens without an encoder.
TEST(CudaForcedTokensTest, AnyRequestsMatchTheHost) {
  ExpectAnyRequestsMatchTheHost("qwen3", {}, 128, 3);
}

}  // namespace
}  // namespace espalier::testing
