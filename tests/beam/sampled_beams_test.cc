// Beams that are drawn (do_sample with num_beams > 1): candidates are drawn
// without replacement from softmax of the cumulative scores of all beams
// together, and rank in the order in which they were drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "beam/strategy/beam_strategy.h"
#include "beam/strategy/candidate_order.h"
#include "beam/strategy/selection_options.h"
#include "tests/beam/search_alone.h"
#include "tests/few_cases.h"
#include "tests/p_value.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::AnswerAsTheEngine;
using testing::Cases;
using ::testing::ElementsAre;
using testing::kLeastPValue;
using testing::SearchAsTheEngine;
using testing::ToyLogitsModel;

GenerationParams Sampled(int64_t num_beams, uint64_t seed) {
  GenerationParams params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_beams;
  params.do_sample = true;
  params.max_new_tokens = 5;
  params.eos_token_id = {0};
  params.seed = seed;
  return params;
}

std::vector<RankedCandidate> Drawn(
    const GenerationParams& params, const PlanSelection& selection,
    const std::vector<std::vector<float>>& rows) {
  std::vector<RankedCandidate> drawn;
  MakeCandidateOrder(params)->Rank(
      AnswerAsTheEngine(selection, rows).candidates, selection.num_generated,
      selection.num_candidates(), &drawn);
  return drawn;
}

// The first two of the draw, from two beams of different sums, against the
// probabilities of drawing in turn.
TEST(SampledBeamsTest, CandidatesAreDrawnInTurnFromAllBeamsTogether) {
  constexpr int kVocabSize = 4;
  const std::vector<std::vector<float>> rows = {{0.5f, 2, 1, -1},
                                                {1, 1.5f, -2, 0.25f}};
  PlanSelection selection;
  selection.num_rows = 2;
  selection.choice = RowSelection{.num_candidates = 4, .gumbel_top_k = true};
  selection.num_generated = 3;
  selection.cum_log_probs = {-2, -1.5f};
  constexpr int kNumCells = 2 * kVocabSize;
  std::vector<double> p;
  double total = 0;
  for (int row = 0; row < 2; ++row) {
    for (const float log_prob : testing::LogSoftmax(rows[row])) {
      p.push_back(std::exp(selection.cum_log_probs[row] + log_prob));
      total += p.back();
    }
  }
  std::vector<int> counts(kNumCells * kNumCells);
  const uint64_t num_draws = Cases(100000, 5000);
  for (uint64_t seed = 0; seed < num_draws; ++seed) {
    const GenerationParams params = Sampled(2, seed);
    selection.params = MakeSelectionParams(params);
    const auto drawn = Drawn(params, selection, rows);
    ASSERT_EQ(drawn.size(), 4);
    const auto cell = [&](size_t i) {
      return drawn[i].candidate.beam * kVocabSize + drawn[i].candidate.token;
    };
    ++counts[cell(0) * kNumCells + cell(1)];
  }
  std::vector<double> probabilities;
  for (int a = 0; a < kNumCells; ++a) {
    for (int b = 0; b < kNumCells; ++b) {
      const double first = p[a] / total;
      probabilities.push_back(a == b ? 0 : first * p[b] / (total - p[a]));
    }
  }
  const double p_value = testing::ChiSquarePValue(probabilities, counts);
  std::printf("ordered pairs of %d candidates: p = %.3g\n", kNumCells, p_value);
  EXPECT_GE(p_value, kLeastPValue);
}

// As in the reference: a beam that ends must be among the first k sampled, and
// the k best others live, wherever they were sampled.
TEST(SampledBeamsTest, HitsCountByTheOrderOfTheDrawAndBeamsByScore) {
  constexpr int kSteps = 400;
  int num_reordered = 0;
  int num_late = 0;  // beams that were not among the first k that go on
  for (uint64_t seed = 0; seed < kSteps; ++seed) {
    const GenerationParams params = Sampled(2, seed);
    BeamStrategy strategy(params);
    const Request request = {{1}, params};
    const auto model = ToyLogitsModel({.vocab_size = 6, .seed = seed});
    const SelectionResult answer =
        testing::NextAnswer(strategy, model, request);
    std::vector<RankedCandidate> drawn;
    MakeCandidateOrder(params)->Rank(answer.candidates, 0, 4, &drawn);
    std::vector<Candidate> expected;  // that live
    size_t num_finished = 0;
    for (size_t rank = 0; rank < drawn.size(); ++rank) {
      if (drawn[rank].candidate.token == 0) {
        num_finished += rank < 2;
      } else {
        expected.push_back(drawn[rank].candidate);
      }
    }
    const Candidate second_drawn = expected[1];
    if (expected[0].cum_log_prob < expected[1].cum_log_prob) ++num_reordered;
    std::ranges::sort(expected, std::greater(), &Candidate::cum_log_prob);
    num_late += expected[1].cum_log_prob > second_drawn.cum_log_prob;
    ASSERT_OK(strategy.Advance(answer, nullptr));
    EXPECT_THAT(strategy.continuations(),
                ElementsAre(Continuation{0, expected[0].token},
                            Continuation{0, expected[1].token}));
    EXPECT_EQ(strategy.Hypotheses().size(), num_finished);
  }
  EXPECT_GT(num_reordered, kSteps / 20);
  EXPECT_GT(num_late, kSteps / 20);
}

TEST(SampledBeamsTest, ASeedGivesTheSameBeamsAndAnotherOthers) {
  const auto model = ToyLogitsModel({.vocab_size = 12, .seed = 4});
  int num_same = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Request request = {{1, 2}, Sampled(3, seed)};
    const Request other = {{1, 2}, Sampled(3, seed + 100)};
    ASSERT_OK_AND_ASSIGN(const Result a, SearchAsTheEngine(model, request));
    ASSERT_OK_AND_ASSIGN(const Result b, SearchAsTheEngine(model, request));
    ASSERT_OK_AND_ASSIGN(const Result c, SearchAsTheEngine(model, other));
    EXPECT_EQ(a.hypotheses[0].tokens, b.hypotheses[0].tokens);
    num_same += a.hypotheses[0].tokens == c.hypotheses[0].tokens;
  }
  EXPECT_LT(num_same, 10);
}

// Scores sum log-probabilities over the temperature, as the reference's
// warpers leave them.
TEST(SampledBeamsTest, TemperatureDividesWhatScoresSum) {
  const auto model = ToyLogitsModel({.vocab_size = 12, .seed = 4});
  Request request = {{1, 2}, Sampled(3, 5)};
  request.params.temperature = 2;
  ASSERT_OK_AND_ASSIGN(const Result result, SearchAsTheEngine(model, request));
  for (const Hypothesis& hypothesis : result.hypotheses) {
    double sum = 0;
    std::vector<TokenId> history = request.prompt_tokens;
    for (const TokenId token : hypothesis.tokens) {
      sum += testing::LogSoftmax(model(history))[token] / 2;
      history.push_back(token);
    }
    EXPECT_NEAR(hypothesis.cum_log_prob, sum, 1e-5);
  }
}

}  // namespace
}  // namespace espalier
