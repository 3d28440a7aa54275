// Results of the executor on the device, compared with the host's for the same
// plans: every kind of selection, by asynchronously scheduled groups and by
// rows, all in one batch, with log-probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "executor/host/model_executor.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/executor/plan_source.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

constexpr TokenId kEos = 2;

SelectionParams ParamsOf(SelectionKind kind, int num_logprobs) {
  SelectionParams params;
  params.domain = kind == SelectionKind::kDraws ? ScoreDomain::kLogits
                                                : ScoreDomain::kLogProbs;
  params.num_logprobs = num_logprobs;
  return params;
}

std::shared_ptr<const SelectionParams> Share(SelectionParams params) {
  return std::make_shared<const SelectionParams>(std::move(params));
}

// Logits that the host computed in a step.
struct HostLogits {
  int vocab_size = 0;
  std::vector<float> logits;  // [num_logits, vocab_size]
  // [selections][rows + 1]  selections as in the step's result
  std::vector<SmallVector<int>> first_logits;
  std::vector<int> first_scored;  // [scorings]

  std::span<const float> row(int index) const {
    return std::span(logits).subspan(size_t{1} * index * vocab_size,
                                     vocab_size);
  }
};

// A model that keeps the logits of each step.
class LoggedModel : public Model {
 public:
  explicit LoggedModel(Model* model) : model_(model) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    RETURN_IF_ERROR(model_->Forward(plan, logits));
    HostLogits& step = steps_.emplace_back();
    step.vocab_size = description().vocab_size;
    step.logits.assign(logits.begin(), logits.end());
    for (const PlanSelection& selection : plan.selections) {
      step.first_logits.push_back(selection.FirstLogits());
    }
    for (const PlanPromptLogprobs& scoring : plan.scorings) {
      step.first_scored.push_back(scoring.first_logits);
    }
    return absl::OkStatus();
  }

  const HostLogits& step(size_t i) const { return steps_.at(i); }

 private:
  Model* const model_;
  std::vector<HostLogits> steps_;
};

// Largest error of a log-probability on the device or the host. Differences of
// the two were at most 1.6e-5 on an H200.
constexpr float kLogProbError = 5e-5f;

// Differences between the results of two executors.
struct Differences {
  int num_candidates = 0;
  int num_other_tokens = 0;  // sampled, or in another order
  int num_ties = 0;          // others, whose sums differ by rounding
  int num_ranks = 0;         // ranks of tokens, and of the best beside them
  int num_other_ranks = 0;
  int num_near_ties = 0;  // ranks that the error of log-probabilities may move
  float most_error = 0;   // largest difference of log-probabilities
  float widest_swap = 0;  // largest gap of two that swapped their ranks

  void Print(const char* name) const {
    std::printf(
        "%s: %d candidates, %d others, %d tied, %d ranks, %d others, %d near "
        "ties, errors up to %.2g, swapped gaps up to %.2g\n",
        name, num_candidates, num_other_tokens, num_ties, num_ranks,
        num_other_ranks, num_near_ties, most_error, widest_swap);
  }
};

// Checks that the host may give `token` the rank `actual` in a row of logits:
// tokens whose gap exceeds the errors of both are in the order of the host.
void CheckRank(std::span<const float> logits, TokenId token, int actual,
               Differences* d) {
  const float own = logits[token];
  int first = 1, last = 0, expected = 1;
  for (const float logit : logits) {
    first += logit > own + 2 * kLogProbError;
    last += logit >= own - 2 * kLogProbError;
    expected += logit > own;
  }
  ++d->num_ranks;
  d->num_near_ties += first != last;
  EXPECT_GE(actual, first) << "token " << token;
  EXPECT_LE(actual, last) << "token " << token;
  if (actual == expected) return;
  ++d->num_other_ranks;
  std::vector<float> sorted(logits.begin(), logits.end());
  std::ranges::sort(sorted, std::greater());
  d->widest_swap = std::max(d->widest_swap, std::abs(sorted[actual - 1] - own));
}

//   logits  [expected.size()]  of the host, one row for each
void CompareLogProbs(std::span<const TokenLogProb> expected,
                     std::span<const TokenLogProb> actual,
                     std::span<const std::span<const float>> logits,
                     Differences* d) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].token, expected[i].token);
    ASSERT_EQ(actual[i].best.size(), expected[i].best.size());
    if (expected[i].token < 0) continue;
    const float log_sum = logits[i][expected[i].token] - expected[i].log_prob;
    const auto check = [&](TokenId token, float log_prob, int rank) {
      const float error = std::abs(log_prob - (logits[i][token] - log_sum));
      EXPECT_LE(error, kLogProbError) << "token " << token;
      d->most_error = std::max(d->most_error, error);
      CheckRank(logits[i], token, rank, d);
    };
    check(actual[i].token, actual[i].log_prob, actual[i].rank);
    std::set<TokenId> best;
    for (const TokenScore& score : actual[i].best) {
      EXPECT_TRUE(best.insert(score.token).second) << "token " << score.token;
      check(score.token, score.log_prob, static_cast<int>(best.size()));
    }
  }
}

// True if the numbers are equal or neighbours, or have one between them.
bool IsTie(float a, float b) {
  const float size = std::abs(b);
  return std::abs(a - b) <= 2 * (std::nextafter(size, INFINITY) - size);
}

//   logits  of the host, from which selection `index` of a step chose
void CompareSelections(const SelectionResult& expected,
                       const SelectionResult& actual, const HostLogits& logits,
                       size_t index, Differences* d) {
  EXPECT_EQ(actual.request, expected.request);
  ASSERT_EQ(actual.candidates.size(), expected.candidates.size());
  int num_others = 0, num_ties = 0;
  for (size_t i = 0; i < expected.candidates.size(); ++i) {
    const Candidate& a = actual.candidates[i];
    const Candidate& e = expected.candidates[i];
    ++d->num_candidates;
    if (a.beam != e.beam || a.token != e.token) {
      const bool is_tie = IsTie(a.cum_log_prob, e.cum_log_prob);
      num_ties += is_tie;
      num_others += !is_tie;
    }
    EXPECT_TRUE(a.cum_log_prob == e.cum_log_prob ||
                Close(a.cum_log_prob, e.cum_log_prob))
        << a.cum_log_prob << ", expected " << e.cum_log_prob;
  }
  d->num_other_tokens += num_others;
  d->num_ties += num_ties;
  if (num_others + num_ties > 0) return;  // those are of other tokens
  std::vector<std::span<const float>> rows;
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    const int beam = expected.candidates[i].beam;
    rows.push_back(logits.row(logits.first_logits[index][beam]));
  }
  CompareLogProbs(expected.logprobs, actual.logprobs, rows, d);
}

Differences Compare(const StepResult& expected, const StepResult& actual,
                    const HostLogits& logits) {
  Differences d;
  EXPECT_EQ(actual.selections.size(), expected.selections.size());
  if (actual.selections.size() != expected.selections.size()) return d;
  for (size_t i = 0; i < expected.selections.size(); ++i) {
    SCOPED_TRACE(Concat("answer ", i));
    CompareSelections(expected.selections[i], actual.selections[i], logits, i,
                      &d);
  }
  EXPECT_EQ(actual.scorings.size(), expected.scorings.size());
  if (actual.scorings.size() != expected.scorings.size()) return d;
  for (size_t i = 0; i < expected.scorings.size(); ++i) {
    SCOPED_TRACE(Concat("scoring ", i));
    EXPECT_EQ(actual.scorings[i].request, expected.scorings[i].request);
    std::vector<std::span<const float>> rows;
    for (size_t t = 0; t < expected.scorings[i].logprobs.size(); ++t) {
      rows.push_back(logits.row(logits.first_scored[i] + static_cast<int>(t)));
    }
    CompareLogProbs(expected.scorings[i].logprobs, actual.scorings[i].logprobs,
                    rows, &d);
  }
  return d;
}

class CudaExecutorChoiceTest : public CudaExecutorTest {
 protected:
  std::vector<TokenId> AnyTokens(int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) {
      tokens.push_back(3 + random_() % (host_->description().vocab_size - 3));
    }
    return tokens;
  }

  // A group of one row.
  PlanSelection& AddPrompt(PlanSource& source, int num_tokens, int num_slots,
                           SelectionParams params) {
    source.AddRow(AnyTokens(num_tokens), 1);
    return source.AddSelection(RequestId{next_request_++}, 1, num_slots,
                               Share(std::move(params)));
  }
  PlanSelection& AddBeams(PlanSource& source, int num_tokens, int num_beams,
                          SelectionParams params) {
    PlanSelection& selection =
        AddPrompt(source, num_tokens, num_beams, std::move(params));
    selection.choice = BeamSelection{.num_candidates = 2 * num_beams};
    selection.eos_token_ids = {kEos};
    return selection;
  }
  PlanSelection& AddSamples(PlanSource& source, int num_tokens, int num_samples,
                            SelectionParams params) {
    PlanSelection& selection =
        AddPrompt(source, num_tokens, num_samples, std::move(params));
    DrawSelection& draws = selection.Choose<DrawSelection>();
    for (int i = 0; i < num_samples; ++i) draws.samples.push_back(i);
    // Some end soon.
    selection.eos_token_ids = {kEos};
    for (TokenId token = 3; token < 300; token += 3) {
      selection.eos_token_ids.push_back(token);
    }
    return selection;
  }

  std::vector<PlanSelection> AddGroupsThatGoOn(PlanSource& source);
  std::vector<PlanSelection> AddRows(PlanSource& source);
  void AddScorings(PlanSource& source);
  std::vector<StepPlan> AnyPlans(int num_steps);

  std::mt19937 random_{20261120};
  int64_t next_request_ = 0;
  // Token ids that rows may be restricted to.
  const std::vector<TokenId> allowed_ = {4, 5, 9, 17, 100, 101, 102, 250, 400};
};

std::vector<PlanSelection> CudaExecutorChoiceTest::AddGroupsThatGoOn(
    PlanSource& source) {
  std::vector<PlanSelection> groups;
  groups.push_back(AddBeams(source, 7, 4, ParamsOf(SelectionKind::kBeams, -1)));
  SelectionParams params = ParamsOf(SelectionKind::kBeams, 5);
  params.processors.suppress_tokens = {5, 300, 262};
  groups.push_back(AddBeams(source, 16, 5, params));
  params = ParamsOf(SelectionKind::kBeams, 0);
  params.processors.allowed_tokens = allowed_;
  groups.push_back(AddBeams(source, 3, 3, params));

  params = ParamsOf(SelectionKind::kDraws, -1);
  params.sampling = {.temperature = 0.0f};
  groups.push_back(AddSamples(source, 11, 1, params));
  params.sampling = {.temperature = 1.0f, .seed = 1};
  groups.push_back(AddSamples(source, 15, 6, params));
  params.num_logprobs = 3;
  params.sampling = {
      .temperature = 1.5f, .top_k = 40, .top_p = 0.9f, .seed = 2};
  groups.push_back(AddSamples(source, 33, 5, params));
  params.num_logprobs = 64;
  params.sampling = {.temperature = 0.8f, .min_p = 0.02f, .seed = 3};
  params.processors.logit_bias = {{.token = 7, .bias = 9.0f},
                                  {.token = 9, .bias = -3.0f}};
  groups.push_back(AddSamples(source, 2, 9, params));
  params = ParamsOf(SelectionKind::kDraws, 1);
  params.sampling = {.temperature = 1.0f, .typical_p = 0.7f, .seed = 4};
  params.processors.allowed_tokens = allowed_;
  groups.push_back(AddSamples(source, 20, 3, params));
  return groups;
}

// Rows that are fed again, over slots in any order.
std::vector<PlanSelection> CudaExecutorChoiceTest::AddRows(PlanSource& source) {
  std::vector<PlanSelection> groups;
  const BeamSelection beams = {.num_candidates = 7};
  const RowSelection by_row = {.num_candidates = 7};
  const RowSelection with_noise = {.num_candidates = 7, .gumbel_top_k = true};
  const auto add = [&](int num_rows, int num_tokens, const auto& choice,
                       const SelectionParams& params, bool restricted) {
    std::vector<std::vector<TokenId>> histories;
    for (int i = 0; i < num_rows; ++i) {
      histories.push_back(AnyTokens(num_tokens));
      source.AddRow(histories.back(), 1);
    }
    PlanSelection& selection = source.AddSelection(
        RequestId{next_request_++}, num_rows, num_rows, Share(params));
    selection.choice = choice;
    std::ranges::reverse(selection.slots);
    if (params.processors.needs_history()) selection.histories = histories;
    for (int i = 0; restricted && i < num_rows; ++i) {
      selection.allowed.push_back(std::span(allowed_).subspan(2 * i));
    }
    groups.push_back(selection);
  };
  add(3, 9, by_row, ParamsOf(SelectionKind::kRows, -1), false);
  SelectionParams params = ParamsOf(SelectionKind::kRows, 4);
  params.processors.suppress_tokens = {5, 6, 7};
  params.processors.repetition_penalty = 1.4f;
  add(4, 15, by_row, params, false);
  add(4, 18, by_row, ParamsOf(SelectionKind::kRows, 2), true);
  add(3, 5, beams, ParamsOf(SelectionKind::kBeams, 0), true);
  params = ParamsOf(SelectionKind::kBeams, -1);
  params.processors.no_repeat_ngram_size = 1;
  add(2, 30, beams, params, false);
  params = ParamsOf(SelectionKind::kRows, 3);
  params.sampling = {.temperature = 1.3f, .top_k = 30, .seed = 11};
  add(3, 12, with_noise, params, false);
  params.domain = ScoreDomain::kLogits;  // stochastic beams
  params.sampling = {.temperature = 1.0f, .top_p = 0.95f, .seed = 12};
  add(4, 4, with_noise, params, false);
  add(4, 7, with_noise, params, true);
  return groups;
}

// A chunk of a prompt, and the end of another, of which the next token is
// chosen too.
void CudaExecutorChoiceTest::AddScorings(PlanSource& source) {
  const std::vector<TokenId> tokens = AnyTokens(12);
  source.plan.scorings.push_back({.request = RequestId{next_request_++},
                                  .first_logits = source.plan.num_logits,
                                  .tokens = AnyTokens(12),
                                  .num_logprobs = 4});
  source.AddRow(tokens, 12);
  source.plan.scorings.push_back({.request = RequestId{next_request_},
                                  .first_logits = source.plan.num_logits,
                                  .tokens = {tokens.begin() + 1, tokens.end()},
                                  .num_logprobs = 0});
  source.AddRow(tokens, 12);
  SelectionParams params = ParamsOf(SelectionKind::kDraws, 2);
  params.sampling.temperature = 0.0f;
  PlanSelection& selection = source.AddSelection(RequestId{next_request_++}, 1,
                                                 1, Share(std::move(params)));
  selection.choice = DrawSelection{.samples = {0}};
}

// Returns plans of a few steps, each with all features of a plan.
std::vector<StepPlan> CudaExecutorChoiceTest::AnyPlans(int num_steps) {
  PlanSource source(host_->description().page_size);
  std::vector<StepPlan> plans;
  const std::vector<PlanSelection> groups = AddGroupsThatGoOn(source);
  std::vector<PlanSelection> rows = AddRows(source);
  AddScorings(source);
  plans.push_back(source.Take());
  while (std::ssize(plans) < num_steps) {
    for (const PlanSelection& group : groups) source.Continue(group);
    for (PlanSelection& group : rows) {
      const std::vector<TokenId> tokens = AnyTokens(group.num_rows);
      for (size_t i = 0; i < group.histories.size(); ++i) {
        group.histories[i].push_back(tokens[i]);
      }
      group = source.FeedRows(group, tokens);
    }
    if (plans.size() == 5) AddScorings(source);
    plans.push_back(source.Take());
  }
  return plans;
}

std::vector<StepResult> RunAll(StepExecutor& steps,
                               const std::vector<StepPlan>& plans,
                               size_t num_in_flight) {
  std::vector<std::promise<absl::StatusOr<StepResult>>> done(plans.size());
  std::vector<StepResult> results;
  const auto take_oldest = [&] {
    absl::StatusOr<StepResult> result = done[results.size()].get_future().get();
    EXPECT_OK(result.status());
    results.push_back(result.ok() ? *std::move(result) : StepResult());
  };
  for (size_t i = 0; i < plans.size(); ++i) {
    if (i - results.size() == num_in_flight) take_oldest();
    steps.Execute(plans[i], [&done, i](absl::StatusOr<StepResult> result) {
      done[i].set_value(std::move(result));
    });
  }
  while (results.size() < plans.size()) take_oldest();
  return results;
}

TEST_F(CudaExecutorChoiceTest, EveryKindInOneBatchIsTheHosts) {
  const std::vector<StepPlan> plans = AnyPlans(Cases(14, 7));
  LoggedModel logged(host_);
  const auto host = MakeExecutor(&logged, *pool_, {.run_ahead = true});
  const std::vector<StepResult> expected = RunAll(*host, plans, 1);
  using Counts = std::vector<size_t>;
  for (const size_t num_in_flight : Cases(Counts{1, 2}, Counts{2})) {
    const OnDevice device = Load(Float32());
    ASSERT_NE(device.steps, nullptr);
    ASSERT_EQ(device.steps->description().page_size,
              host_->description().page_size);
    const std::vector<StepResult> actual =
        RunAll(*device.steps, plans, num_in_flight);
    for (size_t i = 0; i < plans.size(); ++i) {
      SCOPED_TRACE(Concat("step ", i));
      const Differences d = Compare(expected[i], actual[i], logged.step(i));
      d.Print(Concat("step ", i, ", ", num_in_flight, " in flight").c_str());
      EXPECT_EQ(d.num_other_tokens, 0);
      // Two log-probabilities may lie within rounding of each other.
      EXPECT_LE(d.num_ties, d.num_candidates / 100);
      // Few enough for the ranks to say something.
      EXPECT_LE(d.num_near_ties, d.num_ranks / 10);
    }
    PrintFigures(*device.steps);
  }
}

TEST_F(CudaExecutorChoiceTest, WhereNoTokenIsPossibleThatIsSaid) {
  PlanSource source(host_->description().page_size);
  SelectionParams params = ParamsOf(SelectionKind::kDraws, 1);
  PlanSelection& none = AddSamples(source, 5, 3, params);
  none.allowed = {std::span<const TokenId>()};
  const PlanSelection without = none;
  const PlanSelection with = AddSamples(source, 5, 3, params);
  PlanSelection& beams =
      AddBeams(source, 5, 3, ParamsOf(SelectionKind::kBeams, -1));
  beams.allowed = {std::span<const TokenId>()};
  std::vector<StepPlan> plans = {source.Take()};
  source.Continue(without);
  source.Continue(with);
  plans.push_back(source.Take());
  LoggedModel logged(host_);
  const auto host = MakeExecutor(&logged, *pool_, {.run_ahead = true});
  const std::vector<StepResult> expected = RunAll(*host, plans, 1);
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  const std::vector<StepResult> actual = RunAll(*device.steps, plans, 2);
  ASSERT_EQ(actual[0].selections[0].candidates.size(), 3u);
  for (const Candidate& candidate : actual[0].selections[0].candidates) {
    EXPECT_EQ(candidate.token, kNoToken);
  }
  EXPECT_TRUE(actual[0].selections[2].candidates.empty());
  EXPECT_TRUE(actual[1].selections[0].candidates.empty());
  Differences d;
  for (int step : {0, 1}) {
    CompareSelections(expected[step].selections[1], actual[step].selections[1],
                      logged.step(step), 1, &d);
  }
  EXPECT_EQ(d.num_candidates, 6);
  EXPECT_EQ(d.num_other_tokens, 0);
}

}  // namespace
}  // namespace espalier::testing
