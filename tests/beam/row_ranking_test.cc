// Candidates that executors may drop by RowRanking do not change any search:
// sampled, stochastic and diverse beams end the same with and without it, to
// the bit. An executor that ranks whole rows, as a device does, drops the same
// ones as one that ranks rows while it reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "beam/strategy/make_strategy.h"
#include "beam/strategy/selection_options.h"
#include "executor/candidate_filter.h"
#include "tests/beam/search_alone.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

class AnySearch {
 public:
  explicit AnySearch(int seed) : random_(seed) {
    options.seed = seed;
    options.vocab_size = 3 + Below(30);
    options.eos_boost = 0.5f * Below(6);
    options.impossible_percent = Below(3) == 0 ? Below(90) : 0;
    GenerationParams& params = request.params;
    request.prompt_tokens = {1};
    params.num_beams = 2 + Below(12);
    params.num_return_sequences = params.num_beams;
    params.max_new_tokens = 1 + Below(7);
    params.eos_token_id = {{0}};
    for (int i = Below(4); i > 0; --i) {
      params.stop_token_ids.push_back(Below(options.vocab_size));
    }
    params.seed = seed;
    params.temperature = Below(2) == 0 ? 1.0 : 0.25 * (1 + Below(8));
    if (Below(3) == 0) params.repetition_penalty = 1.5;
    if (Below(3) == 0) params.top_k = 1 + Below(9);
    switch (seed % 3) {
      case 0:
        params.do_sample = true;
        break;
      case 1:
        params.stochastic = true;
        break;
      default:
        MakeDiverse(&params);
    }
  }

  ToyModelOptions options;
  Request request;

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }

  void MakeDiverse(GenerationParams* params) {
    const int size = 1 + Below(4);
    params->num_beam_groups = 2 + Below(5);
    params->num_beams = size * params->num_beam_groups;
    params->num_return_sequences = params->num_beams;
    params->diversity_penalty = 0.25 * Below(12);
    params->temperature = 1;
    params->top_k = 0;
  }

  std::mt19937 random_;
};

struct Outcome {
  absl::Status status;
  std::vector<Hypothesis> hypotheses;
  std::optional<double> threshold;
  size_t num_candidates = 0;  // in all answers
};

// The strategy's next selection, and the logits of its rows.
struct StepInputs {
  PlanSelection selection;
  std::vector<std::vector<float>> logits;
};

StepInputs InputsOf(const DecodeStrategy& strategy, const Request& request,
                    const LogitsModel& model) {
  StepInputs asked;
  PlanSelection& selection = asked.selection;
  strategy.DescribeSelection(&selection);
  selection.params = MakeSelectionParams(request.params);
  for (int rank = 0; rank < selection.num_rows; ++rank) {
    selection.histories.push_back(request.prompt_tokens);
    strategy.AppendTokens(rank, &selection.histories.back());
    asked.logits.push_back(model(selection.histories.back()));
  }
  return asked;
}

// Makes the selection need all candidates of each row.
void KeepAll(PlanSelection* selection) {
  selection->EditRows().ranking = KeepEachRow{};
}

// All candidates of a selection, by row.
std::vector<std::vector<Candidate>> CandidatesOfRows(const StepInputs& asked) {
  PlanSelection selection = asked.selection;
  KeepAll(&selection);
  std::vector<std::vector<Candidate>> rows(selection.num_rows);
  for (const Candidate& candidate :
       AnswerAsTheEngine(std::move(selection), asked.logits).candidates) {
    rows[candidate.beam].push_back(candidate);
  }
  return rows;
}

// Returns the candidates that CandidateFilter keeps, with rows added in order.
std::vector<Candidate> Left(const PlanSelection& selection,
                            const std::vector<std::vector<Candidate>>& rows) {
  CandidateFilter contenders(selection);
  for (int row = 0; row < selection.num_rows; ++row) {
    contenders.Add(row, rows[row]);
  }
  return contenders.Take();
}

Outcome RunSearch(const AnySearch& search, bool ranks) {
  const Request& request = search.request;
  const LogitsModel model = ToyLogitsModel(search.options);
  const auto strategy = MakeStrategy(request.params, nullptr, nullptr);
  Outcome outcome;
  while (!strategy->done()) {
    StepInputs asked = InputsOf(*strategy, request, model);
    if (!ranks) KeepAll(&asked.selection);
    const SelectionResult answer =
        AnswerAsTheEngine(asked.selection, asked.logits);
    if (ranks) {
      EXPECT_THAT(answer.candidates,
                  ::testing::ElementsAreArray(
                      Left(asked.selection, CandidatesOfRows(asked))));
    }
    outcome.num_candidates += answer.candidates.size();
    outcome.status = strategy->Advance(answer);
    if (!outcome.status.ok()) return outcome;
  }
  outcome.hypotheses = strategy->Hypotheses();
  outcome.threshold = strategy->threshold();
  return outcome;
}

TEST(RowRankingTest, WhatIsLeftOutChangesNoSearch) {
  size_t num_left = 0, num_all = 0;
  for (int seed = 0; seed < testing::Cases(3000, 300); ++seed) {
    const AnySearch search(seed);
    const Outcome some = RunSearch(search, true),
                  all = RunSearch(search, false);
    ASSERT_EQ(some.status, all.status) << seed;
    ASSERT_EQ(some.threshold, all.threshold) << seed;
    ASSERT_EQ(some.hypotheses.size(), all.hypotheses.size()) << seed;
    for (size_t i = 0; i < all.hypotheses.size(); ++i) {
      const Hypothesis &a = some.hypotheses[i], &b = all.hypotheses[i];
      ASSERT_EQ(a.tokens, b.tokens) << seed;
      ASSERT_EQ(a.score, b.score) << seed;
      ASSERT_EQ(a.cum_log_prob, b.cum_log_prob) << seed;
      ASSERT_EQ(a.finish_reason, b.finish_reason) << seed;
    }
    num_left += some.num_candidates;
    num_all += all.num_candidates;
  }
  EXPECT_LT(2 * num_left, num_all);
}

// Beams that select k * m candidates get a few for each beam.
TEST(RowRankingTest, AnswersOfManyBeamsAreNotTheirSquare) {
  for (int kind = 0; kind < 3; ++kind) {
    AnySearch search(kind);
    search.options.vocab_size = 500;
    search.options.impossible_percent = 0;
    GenerationParams& params = search.request.params;
    params.num_beams = 120;
    params.num_return_sequences = 1;
    params.max_new_tokens = 4;
    params.top_k = 0;
    params.temperature = 1;
    params.stop_token_ids = {};
    if (kind == 2) params.num_beam_groups = 30;
    EXPECT_LT(RunSearch(search, true).num_candidates, 4 * 3 * 120) << kind;
    EXPECT_GT(RunSearch(search, false).num_candidates, 2 * 120 * 120) << kind;
  }
}

// Returns the candidates that CandidateFilter keeps, with rows added in `order`
// by several threads.
std::vector<Candidate> TakeInOrder(
    const PlanSelection& selection,
    const std::vector<std::vector<Candidate>>& rows,
    const std::vector<int>& order, ThreadPool& pool) {
  CandidateFilter contenders(selection);
  pool.ParallelFor(static_cast<int>(order.size()),
                   [&](int i) { contenders.Add(order[i], rows[order[i]]); });
  return contenders.Take();
}

// Rows from several threads, in any order, keep the same candidates as rows in
// order.
TEST(RowRankingTest, WhatIsLeftOutDoesNotDependOnTheOrderOfRows) {
  const std::shared_ptr<ThreadPool> three = MakePool(3);
  std::mt19937 random(1);
  for (int seed = 0; seed < testing::Cases(600, 60); ++seed) {
    AnySearch search(seed);
    GenerationParams& params = search.request.params;
    params.num_beams *= 5;
    params.num_return_sequences = 1;
    const LogitsModel model = ToyLogitsModel(search.options);
    const auto strategy = MakeStrategy(params, nullptr, nullptr);
    while (!strategy->done()) {
      const StepInputs asked = InputsOf(*strategy, search.request, model);
      const auto rows = CandidatesOfRows(asked);
      std::vector<int> order(rows.size());
      std::iota(order.begin(), order.end(), 0);
      SelectionResult result{.request = asked.selection.request};
      const std::vector<Candidate> left = Left(asked.selection, rows);
      result.candidates.assign(left.begin(), left.end());
      for (int round = 0; round < 3; ++round) {
        std::ranges::shuffle(order, random);
        ASSERT_EQ(TakeInOrder(asked.selection, rows, order, *three), left)
            << seed;
      }
      if (!strategy->Advance(result).ok()) break;
    }
  }
}

}  // namespace
}  // namespace espalier
