// Stop strings in every search: what ends as "stop" has a stop in its text,
// completed by its last token, and nothing else has one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "text/text_stream.h"

namespace espalier {
namespace {

using testing::EnFrTokenizer;
using testing::SearchAsTheEngine;
using testing::SharedEnFrTokenizer;
using testing::ToyLogitsModel;

GenerationParams StopParams(uint64_t seed) {
  GenerationParams params;
  params.max_new_tokens = 8;
  params.eos_token_id = {2};
  params.stop = {"ex", "ou", " p"};
  params.seed = seed;
  return params;
}

std::vector<GenerationParams> EverySearch(uint64_t seed) {
  std::vector<GenerationParams> searches(6, StopParams(seed));
  searches[1].num_return_sequences = 3;
  searches[1].do_sample = true;
  for (size_t i = 2; i < searches.size(); ++i) {
    searches[i].num_beams = searches[i].num_return_sequences = 4;
  }
  searches[3].do_sample = true;
  searches[4].stochastic = true;
  searches[5].num_beam_groups = 2;
  searches[5].diversity_penalty = 0.5;
  return searches;
}

bool Stops(std::span<const TokenId> tokens, const GenerationParams& params,
           const StopStrings& stops) {
  const int min_new_tokens = static_cast<int>(params.min_new_tokens);
  TextStream stream(EnFrTokenizer(), stops, {.min_new_tokens = min_new_tokens});
  for (const TokenId token : tokens) stream.Feed(token);
  return stream.stopped();
}

// Returns how many ended at a stop.
int ExpectLawful(const Result& result, const GenerationParams& params) {
  const StopStrings stops = StopStrings::Create(params.stop).value();
  int num_stopped = 0;
  EXPECT_FALSE(result.hypotheses.empty());
  for (const Hypothesis& hypothesis : result.hypotheses) {
    const std::span<const TokenId> tokens = hypothesis.tokens;
    const bool stopped = hypothesis.finish_reason == FinishReason::kStop;
    EXPECT_EQ(Stops(tokens, params, stops), stopped);
    EXPECT_FALSE(Stops(tokens.first(tokens.size() - 1), params, stops));
    EXPECT_TRUE(!stopped || tokens.size() > params.min_new_tokens);
    const std::string text =
        TextOf(tokens, EnFrTokenizer(), stops,
               {.min_new_tokens = static_cast<int>(params.min_new_tokens)});
    if (params.min_new_tokens == 0) {
      for (const std::string& stop : params.stop) {
        EXPECT_EQ(text.find(stop), std::string::npos) << text;
      }
    }
    num_stopped += stopped;
  }
  return num_stopped;
}

TEST(StopSearchTest, EverySearchEndsWhereAStopIsCompleted) {
  std::vector<int> num_stopped(6);
  for (uint64_t seed = 0; seed < 15; ++seed) {
    const auto model = ToyLogitsModel(
        {.vocab_size = 6000, .seed = seed, .eos_token_ids = {2}});
    const std::vector<GenerationParams> searches = EverySearch(seed);
    for (size_t i = 0; i < searches.size(); ++i) {
      Request request = {{1, 4}, searches[i]};
      request.params.min_new_tokens = seed % 3;
      ASSERT_OK_AND_ASSIGN(
          const Result result,
          SearchAsTheEngine(model, request, SharedEnFrTokenizer()));
      num_stopped[i] += ExpectLawful(result, request.params);
    }
  }
  for (const int count : num_stopped) EXPECT_GT(count, 2);
}

}  // namespace
}  // namespace espalier
