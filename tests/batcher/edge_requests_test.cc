// Requests at the edges of the format: options that interact at the end of a
// sequence, and the smallest pages and vocabularies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "text/text_stream.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

// Tokens are bytes and symbols; few of them are allowed, so that stops come.
ToyModelOptions SeededByteModel(uint64_t seed) {
  return {.vocab_size = 262, .seed = seed, .eos_token_ids = {2}};
}

Request TextRequest(std::vector<std::string> stop) {
  Request request{{1, 5, 9}, {}};
  SharedList<int64_t>& allowed = request.params.allowed_token_ids.emplace();
  allowed.push_back(2);
  for (const char* byte : {"<0x61>", "<0x62>", "<0x63>", "<0x20>"}) {
    allowed.push_back(*EnFrTokenizer().PieceToId(byte));
  }
  request.params.max_new_tokens = 12;
  request.params.stop = std::move(stop);
  return request;
}

using Results = std::vector<absl::StatusOr<Result>>;

Results RunTogether(const ToyModelOptions& options,
                    const std::vector<Request>& requests,
                    const SchedulerOptions& scheduling, int plans_in_flight) {
  ToyModel model(options);
  Scheduler scheduler(model.description(), scheduling);
  Results results(requests.size(), absl::UnknownError("not answered"));
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                     PreparedRequest(requests[i], SharedEnFrTokenizer()),
                     [&, i](auto result) { results[i] = std::move(result); });
  }
  RunToEnd(
      scheduler, model, [](int) {}, plans_in_flight);
  EXPECT_EQ(scheduler.pool().num_held(), 0);
  return results;
}

// The best of six samples equal the first of all six, log-probabilities
// included, wherever stops end the others.
TEST(EdgeRequestsTest, TheBestSamplesAreTheFirstOfAllWithTheirLogProbs) {
  int num_stopped = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const ToyModelOptions options = SeededByteModel(seed);
    Request best = TextRequest({"a", "b c"});
    best.params.do_sample = true;
    best.params.seed = seed;
    best.params.logprobs = 2;
    best.params.num_return_sequences = 2;
    best.params.best_of = 6;
    Request all = best;
    all.params.best_of.reset();
    all.params.num_return_sequences = 6;
    ASSERT_OK(ValidateRequest(ToyModel(options).description(), &best));
    ASSERT_OK(ValidateRequest(ToyModel(options).description(), &all));
    for (const int plans_in_flight : {1, 2}) {
      const Results results = RunTogether(
          options, {best, all}, {.validate_steps = true}, plans_in_flight);
      ASSERT_OK(results[0]);
      ASSERT_OK(results[1]);
      ASSERT_EQ(results[0]->hypotheses.size(), 2);
      ASSERT_EQ(results[1]->hypotheses.size(), 6);
      for (size_t i = 0; i < 6; ++i) {
        const Hypothesis& hypothesis = results[1]->hypotheses[i];
        EXPECT_EQ(hypothesis.logprobs.size(), hypothesis.tokens.size());
        num_stopped += hypothesis.finish_reason == FinishReason::kStop;
        if (i > 1) continue;
        const Hypothesis& kept = results[0]->hypotheses[i];
        EXPECT_EQ(kept.tokens, hypothesis.tokens);
        EXPECT_EQ(kept.score, hypothesis.score);
        EXPECT_EQ(kept.finish_reason, hypothesis.finish_reason);
        EXPECT_EQ(kept.logprobs, hypothesis.logprobs);
      }
    }
  }
  EXPECT_GT(num_stopped, 100);
}

// Greedy text with stops is the one without, truncated at the first stop that
// counts.
TEST(EdgeRequestsTest, StopsCutGreedyTextFromMinNewTokensOn) {
  int num_cut_late = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const ToyModelOptions options = SeededByteModel(seed);
    const std::vector<std::string> stop = {"a", "bb"};
    for (const int min_new_tokens : {0, 1, 3, 12}) {
      Request request = TextRequest(stop);
      request.params.min_new_tokens = min_new_tokens;
      ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
      Request endless = request;
      endless.params.stop.clear();
      ASSERT_OK_AND_ASSIGN(const Result cut,
                           RunAlone(options, request, SharedEnFrTokenizer()));
      ASSERT_OK_AND_ASSIGN(const Result whole, RunAlone(options, endless));
      const StopStrings stops = StopStrings::Create(stop).value();
      TextStream text(EnFrTokenizer(), stops,
                      {.min_new_tokens = min_new_tokens});
      std::vector<TokenId> expected;
      for (const TokenId token : whole.hypotheses[0].tokens) {
        expected.push_back(token);
        text.Feed(token);
        if (text.stopped()) break;
      }
      EXPECT_EQ(cut.hypotheses[0].tokens, expected);
      EXPECT_EQ(cut.hypotheses[0].finish_reason,
                text.stopped() ? FinishReason::kStop
                               : whole.hypotheses[0].finish_reason);
      num_cut_late += text.stopped() && min_new_tokens == 3;
    }
  }
  EXPECT_GT(num_cut_late, 10);
}

// Requests take turns on the page, each with a prompt in many chunks.
TEST(EdgeRequestsTest, OnePageIsEnoughForPromptsThatAreScored) {
  ToyModelOptions options = {.page_size = 32, .num_pages = 1};
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    Request& request = requests.emplace_back();
    for (int k = 0; k < 32 - 7 * i; ++k) {
      request.prompt_tokens.push_back(1 + (k * k + i) % 10);
    }
    request.params.max_new_tokens = 1 + 7 * i;
    request.params.prompt_logprobs = i;
    request.params.logprobs = 1;
    ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
  }
  ToyModelOptions roomy = options;
  roomy.page_size = 3;
  roomy.num_pages = 100;
  for (const int max_step_tokens : {1, 7, 500}) {
    for (const int plans_in_flight : {1, 2}) {
      const Results results = RunTogether(
          options, requests,
          {.max_step_tokens = max_step_tokens, .validate_steps = true},
          plans_in_flight);
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_OK_AND_ASSIGN(const Result alone, RunAlone(roomy, requests[i]));
        ASSERT_OK(results[i]);
        EXPECT_TRUE(SameResult(*results[i], alone)) << i;
        EXPECT_EQ(results[i]->prompt_logprobs->size(),
                  requests[i].prompt_tokens.size() - 1);
      }
    }
  }
}

// Every way to search, wider than there are sequences.
std::vector<Request> EveryWideSearch() {
  std::vector<Request> requests(6, Request{{0}, {}});
  for (Request& request : requests) {
    request.params.max_new_tokens = 3;
    request.params.seed = 4;
    request.params.logprobs = 3;
  }
  for (size_t i = 1; i < 5; ++i) {
    requests[i].params.num_beams = requests[i].params.num_return_sequences = 12;
  }
  requests[2].params.num_beam_groups = 3;
  requests[2].params.diversity_penalty = 0.5;
  requests[3].params.stochastic = true;
  requests[4].params.do_sample = true;
  requests[5].params.do_sample = true;
  requests[5].params.num_return_sequences = 12;
  return requests;
}

TEST(EdgeRequestsTest, VocabulariesOfOneAndTwoTokensAreSearched) {
  for (const int vocab_size : {1, 2}) {
    for (const bool has_eos : {false, true}) {
      ToyModelOptions options = {.vocab_size = vocab_size};
      if (!has_eos) options.eos_token_ids.clear();
      std::vector<Request> requests = EveryWideSearch();
      for (Request& request : requests) {
        ASSERT_OK(ValidateRequest(ToyModel(options).description(), &request));
      }
      // All sequences of one or two tokens: 1 and 8, or those before an EOS.
      const size_t num_sequences = vocab_size == 1 ? 1 : has_eos ? 4 : 8;
      for (const int plans_in_flight : {1, 2}) {
        const Results results = RunTogether(
            options, requests, {.validate_steps = true}, plans_in_flight);
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_OK(results[i]) << i;
          ASSERT_OK_AND_ASSIGN(const Result alone,
                               RunAlone(options, requests[i]));
          EXPECT_TRUE(SameResult(*results[i], alone)) << i;
        }
        EXPECT_EQ(results[1]->hypotheses.size(), num_sequences);
        EXPECT_EQ(results[3]->hypotheses.size(), num_sequences);
        EXPECT_EQ(results[3]->threshold, std::nullopt);
        EXPECT_EQ(results[5]->hypotheses.size(), 12);
      }
    }
  }
}

}  // namespace
}  // namespace espalier
