// Effects of scheduling options and params on a generator's statistics and on
// usage. No result shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/generator.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::testing {
namespace {

constexpr int kPageSize = 4;

GenerationRequest OfLength(int num_tokens, TokenId first = 300) {
  std::vector<TokenId> tokens = {1};
  for (int i = 1; i < num_tokens; ++i) tokens.push_back(first + i);
  GenerationRequest request{std::move(tokens)};
  request.params.max_new_tokens = 3;
  return request;
}

Generator Load(GeneratorOptions options = {}) {
  options.num_threads = 1;
  options.page_size = kPageSize;
  absl::StatusOr<Generator> generator = Generator::Load(EnFrDir(), options);
  EXPECT_OK(generator);
  return *std::move(generator);
}

int64_t CachedTokens(Generator& generator, const GenerationRequest& request) {
  const absl::StatusOr<Generation> answer = generator.Generate(request);
  EXPECT_OK(answer);
  return answer->usage.num_cached_tokens;
}

TEST(GeneratorSchedulingTest, APromptIsComputedOnceForAllWhoseSaltItIs) {
  Generator generator = Load();
  GenerationRequest request = OfLength(21);
  EXPECT_EQ(CachedTokens(generator, request), 0);
  EXPECT_EQ(CachedTokens(generator, request), 20);
  EXPECT_EQ(generator.Stats().num_prompt_tokens, 22);
  EXPECT_EQ(generator.Stats().num_cached_tokens, 20);
  EXPECT_EQ(generator.Stats().num_pages_held, 0);
  EXPECT_GE(generator.Stats().num_pages_idle, 5);
  request.params.cache_salt = "a";
  EXPECT_EQ(CachedTokens(generator, request), 0);
  EXPECT_EQ(CachedTokens(generator, request), 20);
  request.params = OfLength(1).params;
  request.params.prefix_cache = false;
  EXPECT_EQ(CachedTokens(generator, request), 0);
  EXPECT_EQ(generator.Stats().num_cached_tokens, 40);
}

TEST(GeneratorSchedulingTest, WithoutThePrefixCacheNothingIsSharedNorKept) {
  Generator generator = Load({.prefix_cache = false});
  EXPECT_EQ(CachedTokens(generator, OfLength(21)), 0);
  EXPECT_EQ(CachedTokens(generator, OfLength(21)), 0);
  EXPECT_EQ(generator.Stats().num_prompt_tokens, 42);
  EXPECT_EQ(generator.Stats().num_cached_tokens, 0);
  EXPECT_EQ(generator.Stats().num_pages_held, 0);
  EXPECT_EQ(generator.Stats().num_pages_idle, 0);
}

// Bytes of a page of the embedded translator: 6 layers of keys and values, 2
// heads of 64 float32 each.
constexpr int64_t kPageBytes = int64_t{6} * 2 * 2 * 64 * 4 * kPageSize;

TEST(GeneratorSchedulingTest, WherePagesRunOutRequestsResumeWithTheSameResult) {
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(OfLength(5, 300 + 10 * i));
    requests.back().params.num_beams = 1 + i % 2;
    requests.back().params.max_new_tokens = 100;
    requests.back().params.ignore_eos = true;
  }
  Generator roomy = Load();
  const auto alone = roomy.GenerateAll(requests);
  EXPECT_EQ(roomy.Stats().num_preemptions, 0);
  for (const bool prefix_cache : {true, false}) {
    SCOPED_TRACE(prefix_cache);
    // Worst case of the widest request: 1 + 2 * 25.
    Generator scarce =
        Load({.kv_cache_bytes = 51 * kPageBytes, .prefix_cache = prefix_cache});
    ASSERT_EQ(scarce.description().num_pages, 51);
    const auto answers = scarce.GenerateAll(requests);
    EXPECT_GT(scarce.Stats().num_preemptions, 0);
    ASSERT_EQ(answers.size(), alone.size());
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_OK(answers[i]);
      EXPECT_EQ(answers[i]->hypotheses[0].tokens,
                alone[i]->hypotheses[0].tokens);
      EXPECT_EQ(answers[i]->hypotheses[0].score, alone[i]->hypotheses[0].score);
    }
  }
}

TEST(GeneratorSchedulingTest, ThePrefillShareSaysWhetherPromptsHaveSteps) {
  // Beside five beams a step of six tokens has room for one of a prompt's 61.
  const auto num_steps = [](double prefill_share) {
    Generator generator =
        Load({.max_step_tokens = 6, .prefill_share = prefill_share});
    GenerationRequest wide = OfLength(4);
    wide.params.num_beams = 5;
    wide.params.max_new_tokens = 200;
    wide.params.ignore_eos = true;
    GenerationRequest late = OfLength(61, 400);
    late.params.max_new_tokens = 1;
    for (const auto& answer : generator.GenerateAll({wide, late})) {
      EXPECT_OK(answer);
    }
    return generator.Stats().num_steps;
  };
  // All of it beside the beams; or, at every other step, six tokens alone.
  const int64_t beside = num_steps(0);
  EXPECT_GE(beside, 200);
  EXPECT_GE(num_steps(1), beside + 5);
}

}  // namespace
}  // namespace espalier::testing
