// The limits of an executor: what one request exceeds is refused when it is
// submitted, and requests together never exceed any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <deque>
#include <future>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

ToyModelOptions LimitedModel(const StepLimits& limits) {
  ToyModelOptions options;
  options.num_pages = 2000;
  options.limits = limits;
  return options;
}

Request MakeRequest(int num_beams, std::vector<TokenId> prompt_tokens) {
  Request request{std::move(prompt_tokens), {}};
  request.params.num_beams = num_beams;
  request.params.max_new_tokens = 4;
  return request;
}

TEST(LimitsTest, WhatOneRequestExceedsIsRefusedAndTheOthersGoOn) {
  ToyModel model(LimitedModel({.max_step_tokens = 8,
                               .max_beams = 4,
                               .max_eos_token_ids = 2,
                               .max_score_edits = 20,
                               .max_candidates = 12}));
  asio::io_context context;
  Engine engine =
      MakeEngine(context.get_executor(), MakeExecutor(&model),
                 {{.max_step_tokens = 500, .validate_steps = true}});
  Request penalised = MakeRequest(3, {1, 2, 3, 4});
  penalised.params.repetition_penalty = 1.5;
  Request many_eos = MakeRequest(1, {1});
  many_eos.params.eos_token_id = {{1, 2, 3}};
  std::vector<std::future<absl::StatusOr<Result>>> answers;
  Request drawn = MakeRequest(4, {8});
  drawn.params.stochastic = true;
  for (const Request& request :
       {MakeRequest(4, {5, 6}), MakeRequest(5, {5, 6}), many_eos, penalised,
        MakeRequest(2, {7}), drawn}) {
    answers.push_back(
        asio::co_spawn(context, engine.Generate(request), asio::use_future));
  }
  context.run();
  EXPECT_OK(answers[0].get());
  EXPECT_THAT(
      answers[1].get(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "num_beams must be at most 4 (max_beams, what a step has room "
               "for), got 5"));
  EXPECT_THAT(answers[2].get(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "eos_token_id must have at most 2 ids (what a step has "
                       "room for), got 3"));
  EXPECT_THAT(answers[3].get(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "the request can never fit: its penalties and bans edit "
                       "21 scores in a step at worst (4 prompt tokens, "
                       "num_beams 3, max_new_tokens 4), there is room for 20"));
  EXPECT_OK(answers[4].get());
  EXPECT_THAT(answers[5].get(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "the request can never fit: it ranks 20 candidates in a "
                       "step at worst (1 prompt token, num_beams 4, "
                       "max_new_tokens 4), there is room for 12"));
}

// A restricted row has an edit for each allowed token and for no other,
// whatever other processors the request has.
TEST(LimitsTest, ARestrictedRequestEditsNoMoreThanIsAllowed) {
  Request request = MakeRequest(4, {1, 2, 3});
  request.params.repetition_penalty = 1.5;
  request.params.frequency_penalty = 0.5;
  request.params.logit_bias = {{1, 1.0}, {2, 1.0}, {9, -1.0}};
  request.params.allowed_sequences = {
      {{4, 5}, {6, 5}, {7, 5}, {8, 1}, {8, 2}, {8, 2}}};
  for (const int64_t room : {4, 5}) {
    ToyModel model(LimitedModel({.max_score_edits = room}));
    Request validated = request;
    ASSERT_OK(ValidateRequest(model.description(), &validated));
    Scheduler scheduler(model.description(), {.validate_steps = true});
    absl::StatusOr<Result> answer;
    scheduler.Submit(RequestId{0}, PreparedRequest(validated),
                     [&](auto result) { answer = std::move(result); });
    RunToEnd(scheduler, model);
    if (room == 5) {
      EXPECT_OK(answer);
      continue;
    }
    EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("its allowed_sequences edit "
                                           "5 scores in a step")));
  }
}

// One below each bound fits, the bound fits, one above is refused with an
// error.
TEST(LimitsTest, AtTheEdgeOfEachBound) {
  struct Case {
    StepLimits limits;  // that the request just fits
    int64_t StepLimits::*bound;
    GenerationParams params;
  };
  GenerationParams base;
  base.max_new_tokens = 3;
  std::vector<Case> cases;
  GenerationParams sampled = base;  // 6 rows, 12 candidates each but 11 tokens
  sampled.num_beams = 6;
  sampled.do_sample = true;
  cases.push_back(
      {{.max_candidates = 66}, &StepLimits::max_candidates, sampled});
  GenerationParams logprobs = base;  // 4 candidates, 7 tokens each
  logprobs.num_beams = 2;
  logprobs.logprobs = 7;
  cases.push_back(
      {{.max_best_tokens = 28}, &StepLimits::max_best_tokens, logprobs});
  GenerationParams biased = base;
  biased.num_beams = 5;
  biased.logit_bias = {{1, 1.0}, {2, 2.0}, {3, 3.0}};
  cases.push_back(
      {{.max_score_edits = 3}, &StepLimits::max_score_edits, biased});
  for (const Case& c : cases) {
    for (const int more : {-1, 0, 1}) {
      StepLimits limits = c.limits;
      limits.*c.bound += more;
      ToyModel model(LimitedModel(limits));
      Request request{{1, 2}, c.params};
      ASSERT_OK(ValidateRequest(model.description(), &request));
      Scheduler scheduler(model.description(), {.validate_steps = true});
      absl::StatusOr<Result> answer;
      scheduler.Submit(RequestId{0}, PreparedRequest(request),
                       [&](auto result) { answer = std::move(result); });
      RunToEnd(scheduler, model);
      const std::string figures =
          Concat("there is room for ", c.limits.*c.bound - 1);
      if (more >= 0) {
        EXPECT_OK(answer);
      } else {
        EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr(figures)));
      }
    }
  }
}

// Errors name the caller's option.
TEST(LimitsTest, WhatDoesNotFitIsNamedAsItWasGiven) {
  ToyModelOptions options;
  options.num_pages = 3;
  ToyModel model(options);
  Request beams = MakeRequest(40, {1});
  Request samples = MakeRequest(1, {1});
  samples.params.do_sample = true;
  samples.params.num_return_sequences = 40;
  Request best = samples;
  best.params.num_return_sequences = 2;
  best.params.best_of = 40;
  for (const auto& [request, field] :
       {std::pair(beams, "num_beams 40,"),
        std::pair(samples, "num_return_sequences 40,"),
        std::pair(best, "best_of 40,")}) {
    Request validated = request;
    ASSERT_OK(ValidateRequest(model.description(), &validated));
    Scheduler scheduler(model.description(), {});
    absl::StatusOr<Result> answer;
    scheduler.Submit(RequestId{0}, PreparedRequest(validated),
                     [&](auto result) { answer = std::move(result); });
    EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr(field)));
  }
}

// Counts the memory that an executor needs for a plan and for its persistent
// groups.
class Load {
 public:
  explicit Load(int vocab_size) : vocab_size_(vocab_size) {}

  void ExpectWithin(const StepPlan& plan, const StepLimits& limits) {
    for (const RequestId request : plan.ended) slots_.erase(request);
    int64_t num_tokens = plan.tokens.size();
    int64_t num_edits = 0;
    int64_t num_candidates = 0;
    for (const PlanSelection& selection : plan.selections) {
      num_candidates += NumCandidates(selection.kind(), selection.num_rows,
                                      selection.num_candidates());
      slots_[selection.request] = selection.num_slots;
      num_edits += NumEdits(selection);
    }
    for (const GroupContinuation& next : plan.continuations) {
      num_candidates +=
          NumCandidates(next.kind, static_cast<int>(next.tail_pages.size()),
                        next.num_candidates);
      num_tokens += next.tail_pages.size();
      PlanSelection asked;
      asked.num_generated = next.num_generated;
      asked.params = next.params;
      num_edits += next.params->processors.needs_history()
                       ? NumEditsOfHistories(next)
                       : NumEdits(asked);
    }
    int64_t num_slots = 0;
    for (const auto& [request, count] : slots_) num_slots += count;
    EXPECT_LE(num_tokens, limits.max_step_tokens);
    EXPECT_LE(num_slots, limits.max_beams);
    EXPECT_LE(num_edits, limits.max_score_edits);
    EXPECT_LE(num_candidates, limits.max_candidates);
    most_edits_ = std::max(most_edits_, num_edits);
    most_candidates_ = std::max(most_candidates_, num_candidates);
  }
  int64_t most_edits() const { return most_edits_; }
  int64_t most_candidates() const { return most_candidates_; }

 private:
  int64_t NumCandidates(SelectionKind kind, int num_rows,
                        int num_logprob_queries) const {
    if (kind == SelectionKind::kDraws) return num_rows;
    if (kind == SelectionKind::kRows) {
      return int64_t{num_rows} * std::min(num_logprob_queries, vocab_size_);
    }
    return std::min<int64_t>(num_logprob_queries,
                             int64_t{num_rows} * vocab_size_);
  }

  // Returns one list per row with edits of its own, else one for all rows.
  int64_t NumEdits(const PlanSelection& selection) const {
    const size_t num_lists = std::max(
        {size_t{1}, selection.histories.size(), selection.allowed.size()});
    int64_t sum = 0;
    for (size_t i = 0; i < num_lists; ++i) {
      ScoreEdits::Row row = {.num_generated = selection.num_generated,
                             .vocab_size = vocab_size_};
      if (!selection.histories.empty()) row.tail = selection.histories[i];
      if (!selection.allowed.empty()) row.allowed = &selection.allowed[i];
      std::vector<TokenEdit> storage;
      sum += selection.params->edits->OfRow(row, &storage).edits.size();
    }
    return sum;
  }

  // Returns the most edits of a group whose histories the executor keeps.
  int64_t NumEditsOfHistories(const GroupContinuation& next) const {
    const ScoreProcessors& processors = next.params->processors;
    int64_t count = MaxEdits(processors, 0, vocab_size_);
    for (const auto& word : processors.bad_words) count += word.size();
    return count + std::ssize(next.tail_pages) *
                       MaxEdits(processors, next.position + 1, vocab_size_);
  }

  const int vocab_size_;
  std::map<RequestId, int> slots_;
  int64_t most_edits_ = 0;
  int64_t most_candidates_ = 0;
};

// Runs until no request can; every plan is within the model's limits.
void RunWithin(Scheduler& scheduler, Model& model, int plans_in_flight,
               Load& load) {
  PlanRunner runner(&model);
  std::deque<absl::StatusOr<StepResult>> results;
  while (true) {
    StepPlan plan = scheduler.Plan();
    const bool waits = plan.is_noop();
    if (!waits) {
      load.ExpectWithin(plan, model.description().limits);
      results.push_back(runner.Run(std::move(plan)));
    }
    if (results.empty()) return;
    if (!waits && results.size() < plans_in_flight) continue;
    scheduler.Advance(std::move(results.front()));
    results.pop_front();
  }
}

TEST(LimitsTest, TogetherRequestsStayWithinAllLimits) {
  int64_t most_edits = 0;
  int64_t most_candidates = 0;
  int num_answered = 0;
  for (uint32_t seed = 0; seed < testing::Cases(100, 20); ++seed) {
    std::mt19937 random(seed);
    StepLimits limits;
    limits.max_beams = 5 + random() % 9;
    limits.max_step_tokens = limits.max_beams + random() % 9;
    limits.max_score_edits = 55 + random() % 30;
    limits.max_candidates = 80 + random() % 60;
    const ToyModelOptions options = LimitedModel(limits);
    ToyModel model(options);
    const auto requests = RandomRequests(20, seed, model.description());
    const int plans_in_flight = 1 + seed % 2;
    Scheduler scheduler(
        model.description(),
        {.max_step_tokens = seed % 4 < 2 ? 3 : 500, .validate_steps = true});
    std::vector<absl::StatusOr<Result>> answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      scheduler.Submit(
          RequestId{static_cast<int64_t>(i)}, PreparedRequest(requests[i]),
          [&answers, i](auto result) { answers[i] = std::move(result); });
    }
    Load load(options.vocab_size);
    RunWithin(scheduler, model, plans_in_flight, load);
    most_edits = std::max(most_edits, load.most_edits());
    most_candidates = std::max(most_candidates, load.most_candidates());
    for (size_t i = 0; i < requests.size(); ++i) {
      const absl::StatusOr<Result> alone = RunAlone(options, requests[i]);
      // Some have more edits than the limit.
      ASSERT_EQ(answers[i].status(), alone.status()) << seed << ", " << i;
      if (!alone.ok()) continue;
      EXPECT_TRUE(SameResult(*answers[i], *alone)) << seed << ", " << i;
      ++num_answered;
    }
  }
  EXPECT_GT(most_edits, 40);
  EXPECT_GT(most_candidates, 60);
  EXPECT_GT(num_answered, testing::Cases(1800, 360));
}

}  // namespace
}  // namespace espalier
