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

// True if a stop string is complete. With `is_over`, no text follows.
bool Stops(std::span<const TokenId> tokens, const GenerationParams& params,
           const StopStrings& stops, bool is_over) {
  const int min_new_tokens = static_cast<int>(params.min_new_tokens);
  TextStream stream(EnFrTokenizer(), stops, {.min_new_tokens = min_new_tokens});
  for (const TokenId token : tokens) stream.Feed(token);
  if (is_over) stream.Finish();
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
    EXPECT_EQ(Stops(tokens, params, stops, true), stopped);
    EXPECT_FALSE(Stops(tokens.first(tokens.size() - 1), params, stops, false));
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

// The last token leaves half a character, U+FFFD in the text, by which alone it
// stops there: whether its length ended it, or its EOS.
TEST(StopSearchTest, ATextThatIsCutAsNothingFollowsEndsAsStop) {
  const std::vector<int64_t> halves = {*EnFrTokenizer().PieceToId("<0xC3>"),
                                       *EnFrTokenizer().PieceToId("<0xE2>")};
  for (const bool by_eos : {false, true}) {
    for (GenerationParams params : EverySearch(1)) {
      params.stop = {"\uFFFD"};
      params.max_new_tokens = by_eos ? 2 : 1;
      params.allowed_token_ids = halves;
      if (by_eos) {
        params.allowed_token_ids->push_back(2);
        params.logit_bias = {{2, 5.0}};
      }
      params.num_return_sequences =
          std::min<int64_t>(params.num_return_sequences, halves.size());
      const auto model =
          ToyLogitsModel({.vocab_size = 6000, .seed = 1, .eos_token_ids = {2}});
      ASSERT_OK_AND_ASSIGN(
          const Result result,
          SearchAsTheEngine(model, {{1, 4}, params}, SharedEnFrTokenizer()));
      const StopStrings stops = StopStrings::Create(params.stop).value();
      for (const Hypothesis& hypothesis : result.hypotheses) {
        const bool has_half = hypothesis.tokens.front() != 2;
        EXPECT_EQ(hypothesis.finish_reason,
                  has_half ? FinishReason::kStop : FinishReason::kEos);
        EXPECT_EQ(TextOf(hypothesis.tokens, EnFrTokenizer(), stops), "");
      }
      ExpectLawful(result, params);
    }
  }
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
