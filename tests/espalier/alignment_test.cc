// Alignments against the cross-attention and the logits of transformers, which
// computed them in float64 (tools/make_whisper_models.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "espalier/generator.h"
#include "tests/status_matchers.h"
#include "tests/whisper_models.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

Generator LoadAligner(const std::string& name,
                      const GeneratorOptions& options = {.num_threads = 2}) {
  GeneratorOptions sized = options;
  if (!sized.kv_cache_bytes) sized.kv_cache_bytes = 8 << 20;
  auto generator = Generator::Load(WhisperPath(name), sized);
  EXPECT_OK(generator);
  return *std::move(generator);
}

// Asks for all heads.
Request AlignAll(const Generator& generator, const SafetensorsFile& file,
                 int number, int num_text_tokens) {
  const EncoderDescription& encoder = *generator.description().encoder;
  AlignmentQuery query = {.num_positions = encoder.max_source_tokens,
                          .num_text_tokens = num_text_tokens};
  const AttentionShape shape = *encoder.reported_attention;
  for (int layer = shape.num_layers - 1; layer >= 0; --layer) {
    for (int head = 0; head < shape.num_heads; ++head) {
      query.heads.push_back({layer, head});
    }
  }
  Request request;
  request.features = StoredFeatures(file, number);
  for (const TokenId token :
       StoredValues<TokenId>(file, Concat("tokens.", number))) {
    request.params.decoder_prompt_tokens.push_back(token);
  }
  // There is room for another.
  constexpr size_t kMost = 38;
  if (request.params.decoder_prompt_tokens.size() > kMost) {
    request.params.decoder_prompt_tokens.resize(kMost);
  }
  request.alignment = std::make_shared<const AlignmentQuery>(std::move(query));
  return request;
}

SafetensorsFile OpenStored(const std::string& name, const char* file) {
  auto opened = SafetensorsFile::Open(WhisperPath(name) + file);
  EXPECT_OK(opened);
  return *std::move(opened);
}

class AlignmentTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, AlignmentTest,
                         ::testing::ValuesIn(WhisperModels()),
                         [](const auto& model) { return model.param; });

TEST_P(AlignmentTest, AttentionIsThatOfTransformers) {
  const SafetensorsFile logits = OpenStored(GetParam(), "/logits.safetensors");
  const SafetensorsFile stored =
      OpenStored(GetParam(), "/attentions.safetensors");
  Generator generator = LoadAligner(GetParam());
  const EncoderDescription& encoder = *generator.description().encoder;
  const AttentionShape shape = *encoder.reported_attention;
  const int num_positions = encoder.max_source_tokens;
  for (const int number : {1, 2}) {
    const auto expected =
        StoredValues<float>(stored, Concat("attentions.", number));
    const auto result = generator.GenerateTokens(
        AlignAll(generator, logits, number, /*num_text_tokens=*/1));
    ASSERT_OK(result);
    ASSERT_TRUE(result->alignment.has_value());
    const std::vector<float>& scores = result->alignment->attention_scores;
    const int num_heads = shape.num_layers * shape.num_heads;
    const auto num_tokens =
        static_cast<int>(scores.size()) / (num_heads * num_positions);
    ASSERT_EQ(num_tokens, number == 1 ? 6 : 16);  // all but the last
    for (int t = 0; t < num_tokens; ++t) {
      for (int h = 0; h < num_heads; ++h) {
        // The last layer is first.
        const int layer = shape.num_layers - 1 - h / shape.num_heads;
        const int head = h % shape.num_heads;
        const float* const row =
            scores.data() + (t * num_heads + h) * num_positions;
        const float* const weights =
            expected.data() +
            ((layer * shape.num_heads + head) * (num_tokens + 1) + t) *
                num_positions;
        double sum = 0;
        for (int p = 0; p < num_positions; ++p) sum += std::exp(double{row[p]});
        for (int p = 0; p < num_positions; ++p) {
          EXPECT_NEAR(std::exp(double{row[p]}) / sum, weights[p], 1e-5)
              << t << " " << layer << " " << head << " " << p;
        }
      }
    }
  }
}

// Tokens of text are among those of text, others among all.
TEST_P(AlignmentTest, LogProbabilitiesAreThoseOfTransformers) {
  const SafetensorsFile file = OpenStored(GetParam(), "/logits.safetensors");
  Generator generator = LoadAligner(GetParam());
  const int vocab_size = generator.description().vocab_size;
  const auto logits = StoredValues<float>(file, "logits.2");
  const auto tokens = StoredValues<TokenId>(file, "tokens.2");
  const int num_text_tokens = vocab_size / 2;
  const auto result =
      generator.GenerateTokens(AlignAll(generator, file, 2, num_text_tokens));
  ASSERT_OK(result);
  const std::vector<float>& log_probs = result->alignment->log_probs;
  ASSERT_EQ(log_probs.size() + 1, tokens.size());
  int num_texts = 0;
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const bool is_text = tokens[i + 1] < num_text_tokens;
    const float* const row = logits.data() + i * vocab_size;
    double sum = 0;
    for (int t = 0; t < (is_text ? num_text_tokens : vocab_size); ++t) {
      sum += std::exp(double{row[t]});
    }
    EXPECT_NEAR(log_probs[i], row[tokens[i + 1]] - std::log(sum), 1e-4);
    num_texts += is_text;
  }
  EXPECT_GT(num_texts, 0);
  EXPECT_LT(num_texts, 16);
}

// Whatever the pages, the steps, the threads and what else runs, also a search
// of the same source.
TEST_P(AlignmentTest, HasTheSameBitsAloneAndTogether) {
  const SafetensorsFile file = OpenStored(GetParam(), "/logits.safetensors");
  std::vector<Alignment> alone;
  {
    Generator generator = LoadAligner(GetParam());
    for (const int number : {1, 2, 3}) {
      const auto result =
          generator.GenerateTokens(AlignAll(generator, file, number, 20));
      ASSERT_OK(result);
      alone.push_back(*result->alignment);
    }
  }
  for (const GeneratorOptions& options :
       {GeneratorOptions{.num_threads = 3, .page_size = 1},
        GeneratorOptions{
            .num_threads = 1, .page_size = 3, .max_step_tokens = 5}}) {
    Generator generator = LoadAligner(GetParam(), options);
    std::vector<std::thread> threads;
    for (int i = 0; i < 9; ++i) {
      threads.emplace_back([&, i] {
        const int number = 1 + i / 3;
        Request request = AlignAll(generator, file, number, 20);
        if (i % 3 == 0) {
          request.alignment = nullptr;
          request.params.decoder_prompt_tokens.resize(2);
          request.params.num_beams = 3;
          request.params.max_new_tokens = 9;
        }
        const auto result = generator.GenerateTokens(std::move(request));
        EXPECT_OK(result);
        if (!result.ok() || i % 3 == 0) return;
        EXPECT_EQ(result->alignment->attention_scores,
                  alone[number - 1].attention_scores);
        EXPECT_EQ(result->alignment->log_probs, alone[number - 1].log_probs);
        EXPECT_TRUE(result->hypotheses.empty() ||
                    result->hypotheses[0].tokens.empty());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(AlignmentTest, RefusesWhatItCannotAlign) {
  const SafetensorsFile file = OpenStored(GetParam(), "/logits.safetensors");
  Generator generator = LoadAligner(GetParam());
  const auto error =
      [&](const std::function<void(Request&, AlignmentQuery&)>& change) {
        Request request = AlignAll(generator, file, 1, 20);
        AlignmentQuery query = *request.alignment;
        change(request, query);
        request.alignment = std::make_shared<const AlignmentQuery>(query);
        const auto status =
            generator.GenerateTokens(std::move(request)).status();
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
        return std::string(status.message());
      };
  EXPECT_THAT(error([](auto&, auto& q) {
                q.heads = {{3, 0}};
              }),
              HasSubstr("got [3, 0]"));
  EXPECT_THAT(error([](auto&, auto& q) {
                q.heads = {{0, -1}};
              }),
              HasSubstr("got [0, -1]"));
  EXPECT_THAT(error([](auto&, auto& q) { q.heads = {}; }),
              HasSubstr("heads, got 0"));
  EXPECT_THAT(error([](auto&, auto& q) {
                q.heads.assign(100'000, {0, 0});
              }),
              HasSubstr("heads, got 100000"));
  EXPECT_THAT(error([](auto&, auto& q) { q.num_positions = 0; }),
              HasSubstr("num_positions"));
  EXPECT_THAT(error([](auto&, auto& q) { q.num_positions = 34; }),
              HasSubstr("num_positions"));
  EXPECT_THAT(error([](auto&, auto& q) { q.num_text_tokens = 0; }),
              HasSubstr("num_text_tokens"));
  EXPECT_THAT(error([](auto& r, auto&) { r.continuations = {{1}}; }),
              HasSubstr("continuations"));
  EXPECT_THAT(error([](auto& r, auto&) { r.params.num_beams = 2; }),
              HasSubstr("an alignment"));
  EXPECT_THAT(error([](auto& r, auto&) { r.params.max_new_tokens = 2; }),
              HasSubstr("max_new_tokens"));
  EXPECT_THAT(error([](auto& r, auto&) {
                r.params.decoder_prompt_tokens = std::vector<int64_t>(40, 5);
              }),
              HasSubstr("40"));
}

}  // namespace
}  // namespace espalier
