// Executors with wrong results: the request of a result ends with an error, and
// all others continue undisturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batcher/scheduler/scheduler.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr RequestId kVictim{1};

Request Beams() {
  Request request{{1, 2, 3}, {}};
  request.params.num_beams = 3;
  request.params.max_new_tokens = 6;
  request.params.eos_token_id = std::vector<int64_t>();
  return request;
}

Request Restricted(Request request = Beams()) {
  request.params.allowed_sequences = {
      {{3, 4, 5, 6}, {3, 4, 6, 6}, {4, 4, 5, 6}, {5, 5, 5, 6}}};
  return request;
}

Request Samples() {
  Request request = Beams();
  request.params.num_beams = 1;
  request.params.do_sample = true;
  request.params.seed = 3;
  request.params.num_return_sequences = 3;
  return request;
}

Request Diverse() {
  Request request = Beams();
  request.params.num_beams = 4;
  request.params.num_beam_groups = 2;
  return request;
}

Request Stochastic() {
  Request request = Beams();
  request.params.stochastic = true;
  request.params.seed = 3;
  return request;
}

Request Reported(Request request = Beams()) {
  request.params.logprobs = 2;
  request.params.prompt_logprobs = 2;
  return request;
}

struct BadAnswer {
  std::string name;
  Request request;
  std::function<void(SelectionResult*)> spoil;
  std::string message;
};

void Misname(SelectionResult* answer) { answer->candidates[0].token = 9; }
void Invent(SelectionResult* answer) { answer->candidates[0].token = 11; }
void Misplace(SelectionResult* answer) { answer->candidates[0].beam = 7; }
void TurnRound(SelectionResult* answer) {
  std::ranges::reverse(answer->candidates);
}
void Misreport(SelectionResult* answer) {
  std::swap(answer->logprobs[0], answer->logprobs[1]);
}
void Forget(SelectionResult* answer) { answer->candidates.pop_back(); }
void Repeat(SelectionResult* answer) {
  answer->candidates[1] = answer->candidates[0];
}

std::vector<BadAnswer> BadAnswers() {
  return {
      {"BeamsNotAllowed", Restricted(), Misname, "which may not follow"},
      {"SamplesNotAllowed", Restricted(Samples()), Misname,
       "which may not follow"},
      {"GroupsNotAllowed", Restricted(Diverse()), Misname,
       "which may not follow"},
      {"StochasticNotAllowed", Restricted(Stochastic()), Misname,
       "which may not follow"},
      {"TokenUnknown", Beams(), Invent, "token 11 after beam"},
      {"BeamUnknown", Samples(), Misplace, "after beam 7 of"},
      {"BeamsUnsorted", Beams(), TurnRound, "out of order"},
      {"GroupsUnsorted", Diverse(), TurnRound, "out of order"},
      {"StochasticUnsorted", Stochastic(), TurnRound, "out of order"},
      {"SamplesSwapped", Samples(), TurnRound, "drew token 0 from beam"},
      {"SampleMissing", Samples(), Forget, "drew 2 tokens for 3 samples"},
      {"BeamTwice", Beams(), Repeat, "twice with token"},
      {"GroupsTwice", Diverse(), Repeat, "twice with token"},
      {"StochasticTwice", Stochastic(), Repeat, "twice with token"},
      {"LogProbsOfOthers", Reported(), Misreport, "instead of"},
  };
}

// Runs three requests, of which the answers of the second are spoilt from its
// second step on.
void RunSpoilt(const BadAnswer& bad, const ToyModelOptions& options,
               std::vector<absl::StatusOr<Result>>* results) {
  ToyModel model(options);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Request request = bad.request;
  ASSERT_OK(ValidateRequest(model.description(), &request));
  const auto others = RandomRequests(2, 5, model.description());
  const Request requests[] = {others[0], request, others[1]};
  results->assign(3, absl::UnknownError("not answered"));
  for (int i = 0; i < 3; ++i) {
    scheduler.Submit(
        RequestId{i}, PreparedRequest(requests[i]),
        [results, i](auto result) { (*results)[i] = std::move(result); });
  }
  for (int step = 0;; ++step) {
    const StepPlan plan = scheduler.Plan();
    if (plan.is_noop()) break;
    ASSERT_OK_AND_ASSIGN(StepResult result, RunPlan(model, plan));
    for (SelectionResult& answer : result.selections) {
      if (step > 0 && answer.request == kVictim) bad.spoil(&answer);
    }
    scheduler.Advance(std::move(result));
  }
  EXPECT_EQ(scheduler.pool().num_held(), 0);
  EXPECT_EQ(model.num_sequences(), 0);
  for (const int i : {0, 2}) {
    const absl::StatusOr<Result> alone = RunAlone(options, requests[i]);
    ASSERT_EQ((*results)[i].status(), alone.status());
    if (!alone.ok()) continue;
    EXPECT_TRUE(SameResult(*(*results)[i], *alone));
  }
}

TEST(BadAnswersTest, EndTheirRequestAndNoOther) {
  for (const BadAnswer& bad : BadAnswers()) {
    SCOPED_TRACE(bad.name);
    std::vector<absl::StatusOr<Result>> results;
    RunSpoilt(bad, {}, &results);
    EXPECT_THAT(results[1],
                StatusIs(absl::StatusCode::kInternal, HasSubstr(bad.message)));
  }
}

// An executor without room for the selection of one request.
TEST(BadAnswersTest, AnErrorEndsItsRequestAndNoOther) {
  const BadAnswer refused = {
      "Refused", Stochastic(),
      [](SelectionResult* answer) {
        *answer = {.request = answer->request,
                   .error = absl::ResourceExhaustedError("no memory for it")};
      },
      ""};
  std::vector<absl::StatusOr<Result>> results;
  RunSpoilt(refused, {}, &results);
  EXPECT_THAT(results[1], StatusIs(absl::StatusCode::kResourceExhausted,
                                   "no memory for it"));
}

// The prompt takes two chunks; the other request is scored, too.
TEST(BadAnswersTest, ScoresOfOtherTokensEndTheirRequestAndNoOther) {
  const std::function<void(PromptLogprobsResult*)> spoils[] = {
      [](PromptLogprobsResult* answer) { answer->logprobs.pop_back(); },
      [](PromptLogprobsResult* answer) { answer->logprobs.push_back({}); },
      [](PromptLogprobsResult* answer) { answer->logprobs[0].token = 9; },
      [](PromptLogprobsResult* answer) {
        answer->logprobs[0].best.assign(3, {1, -1.0f});
      }};
  for (const auto& spoil : spoils) {
    for (int spoilt_step = 0; spoilt_step < 2; ++spoilt_step) {
      ToyModel model({});
      Scheduler scheduler(model.description(),
                          {.max_step_tokens = 9, .validate_steps = true});
      std::vector<absl::StatusOr<Result>> results(2);
      for (int i = 0; i < 2; ++i) {
        Request request = Reported();
        request.prompt_tokens = {1, 2, 3, 4, 5, 6};
        ASSERT_OK(ValidateRequest(model.description(), &request));
        scheduler.Submit(
            RequestId{i}, PreparedRequest(request),
            [&results, i](auto result) { results[i] = std::move(result); });
      }
      for (int step = 0;; ++step) {
        const StepPlan plan = scheduler.Plan();
        if (plan.is_noop()) break;
        ASSERT_OK_AND_ASSIGN(StepResult result, RunPlan(model, plan));
        for (PromptLogprobsResult& answer : result.scorings) {
          if (step == spoilt_step && answer.request == kVictim) spoil(&answer);
        }
        scheduler.Advance(std::move(result));
      }
      EXPECT_OK(results[0]);
      EXPECT_THAT(results[1],
                  StatusIs(absl::StatusCode::kInternal, HasSubstr("answered")));
      EXPECT_EQ(scheduler.pool().num_held(), 0);
    }
  }
}

Request Drafted(Request request) {
  request.params.max_new_tokens = 12;
  request.params.speculate = {SpeculationMethod::kDraft, 3,
                              SpeculationMode::kCoupled};
  request.params.speculate->always_drafts = true;
  return request;
}

// Samples with a constraint, so that a later plan verifies their drafts.
Request ConstrainedDrafts(SpeculationMode mode) {
  Request request = Drafted(Samples());
  request.params.speculate->mode = mode;
  std::vector<std::vector<int64_t>> sequences;
  // The draft model is asked where nothing is forced: for the first tokens.
  for (int beginning = 0; beginning < 8; ++beginning) {
    std::vector<int64_t> sequence(request.params.max_new_tokens.value(), 1);
    for (int i = 0; i < 3; ++i) sequence[i] += beginning >> i & 1;
    sequences.push_back(std::move(sequence));
  }
  request.params.allowed_sequences = std::move(sequences);
  return request;
}

// A bad result for a sequence with requested drafts.
struct BadDraft {
  std::string name;
  Request request;
  std::function<void(const DraftSequence&, DraftedTokens*)> spoil;
  std::string message;
};

void DraftTooMany(const DraftSequence& asked, DraftedTokens* draft) {
  draft->tokens.resize(asked.num_tokens + 1, 1);
}
void DraftFarTooMany(const DraftSequence&, DraftedTokens* draft) {
  draft->tokens.resize(1000, 1);
}
void SearchTooFar(const DraftSequence& asked, DraftedTokens* draft) {
  draft->paths.push_back({});
  draft->paths.back().tokens.resize(asked.num_tokens + 1, 1);
}
void DraftUnknown(const DraftSequence&, DraftedTokens* draft) {
  draft->tokens.assign(1, 11);
}
void DraftNegative(const DraftSequence&, DraftedTokens* draft) {
  draft->tokens.assign(1, -1);
}
void SearchUnknown(const DraftSequence&, DraftedTokens* draft) {
  draft->paths.push_back({});
  draft->paths.back().tokens.assign(1, 11);
}
void AddLogits(const DraftSequence&, DraftedTokens* draft) {
  draft->tokens.assign(1, 1);
  draft->logits = DraftLogits(std::vector<float>(2 * 11));
}

std::vector<BadDraft> BadDrafts() {
  const Request samples = ConstrainedDrafts(SpeculationMode::kCoupled);
  const Request drawn = ConstrainedDrafts(SpeculationMode::kRejection);
  const Request beams = Drafted(Beams());
  return {{"TooMany", samples, DraftTooMany, "which asked for"},
          {"FarTooMany", samples, DraftFarTooMany, "which asked for"},
          {"TooManyOfBeams", beams, DraftTooMany, "which asked for"},
          {"PathTooLong", beams, SearchTooFar, "which asked for"},
          {"TokenUnknown", samples, DraftUnknown, "drafted token 11 of 11"},
          {"TokenNegative", samples, DraftNegative, "drafted token -1 of 11"},
          {"PathUnknown", beams, SearchUnknown, "drafted token 11 of 11"},
          {"LogitsOfNone", samples, AddLogits, "1 tokens with 22 logits"},
          {"LogitsOfOthers", drawn, AddLogits, "1 tokens with 22 logits"}};
}

class BadDraftsTest : public ::testing::Test {
 protected:
  // Runs two requests, and spoils results before the scheduler has them.
  //   later  the plan's sequences that a later plan verifies
  void Run(const Request& request_of_both,
           const std::function<void(std::span<const DraftSequence> later,
                                    StepResult*)>& spoil,
           const SchedulerOptions& options = {.validate_steps = true}) {
    ToyModel model({.has_shareable_pages = true});
    ToyModel draft_model({.has_shareable_pages = true});
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<DraftModel> draft,
        DraftModel::Create(Unowned(&draft_model), MakePool(1)));
    ModelDescription description = model.description();
    description.limits.max_drafted_length = std::numeric_limits<int>::max();
    Scheduler scheduler(description, options);
    for (int i = 0; i < 2; ++i) {
      Request request = request_of_both;
      ASSERT_OK(ValidateRequest(description, &request));
      scheduler.Submit(
          RequestId{i}, PreparedRequest(request),
          [this, i](auto result) { results_[i] = std::move(result); });
    }
    while (true) {
      StepPlan plan = scheduler.Plan();
      if (plan.is_noop()) break;
      std::vector<DraftSequence> later = plan.drafting;
      std::erase_if(later, [](const DraftSequence& sequence) {
        return sequence.verified_by.plan_row >= 0;
      });
      ASSERT_OK_AND_ASSIGN(StepResult result,
                           RunPlan(model, &plan, draft.get()));
      spoil(later, &result);
      scheduler.Advance(std::move(result));
    }
    ExpectNothingHeld(scheduler);
  }

  absl::StatusOr<Result> results_[2];
};

TEST_F(BadDraftsTest, EndTheirRequestAndNoOther) {
  for (const BadDraft& bad : BadDrafts()) {
    SCOPED_TRACE(bad.name);
    Run(bad.request,
        [&](std::span<const DraftSequence> later, StepResult* result) {
          ASSERT_EQ(result->drafts.size(), later.size());
          for (size_t i = 0; i < later.size(); ++i) {
            if (later[i].request != kVictim) continue;
            bad.spoil(later[i], &result->drafts[i]);
          }
        });
    EXPECT_OK(results_[0]);
    EXPECT_THAT(results_[1],
                StatusIs(absl::StatusCode::kInternal, HasSubstr(bad.message)));
  }
}

// However little room a step has for drafts, and also where the only forced
// token is the last one, which no draft has.
TEST_F(BadDraftsTest, ForcedTokensNeedNoDraftModel) {
  for (const int num_samples : {3, 8}) {
    for (const int num_tokens : {12, 10, 9}) {
      for (const int max_step_tokens : {400, 12}) {
        SCOPED_TRACE(Concat(num_samples, ", ", num_tokens, " tokens, of ",
                            max_step_tokens));
        Request request = Drafted(Samples());
        request.params.num_return_sequences = num_samples;
        request.params.allowed_sequences = {
            std::vector<int64_t>(num_tokens, 1)};
        Run(request,
            [](std::span<const DraftSequence> later, StepResult*) {
              EXPECT_THAT(later, IsEmpty());
            },
            {.max_step_tokens = max_step_tokens, .validate_steps = true});
        EXPECT_OK(results_[0]);
        EXPECT_GT(results_[0]->usage.num_drafted_tokens, 0);
      }
    }
  }
}

// Samples that begin with 1 are forced, others after three more tokens.
TEST_F(BadDraftsTest, ADraftModelIsAskedIfASampleIsNotForced) {
  Request request = ConstrainedDrafts(SpeculationMode::kCoupled);
  request.params.num_return_sequences = 8;
  request.params.max_new_tokens = 13;
  std::vector<std::vector<int64_t>> sequences = {std::vector<int64_t>(12, 1)};
  for (std::vector<int64_t> sequence : *request.params.allowed_sequences) {
    sequence.insert(sequence.begin(), 2);
    sequences.push_back(std::move(sequence));
  }
  request.params.allowed_sequences = std::move(sequences);
  const auto is_forced = [](const DraftSequence& asked) {
    return asked.generated[0] == 1 || asked.generated.size() > 3;
  };
  int num_mixed = 0;
  Run(request, [&](std::span<const DraftSequence> later, StepResult*) {
    for (const RequestId id : {RequestId{0}, kVictim}) {
      int num_all = 0;
      int num_forced = 0;
      for (const DraftSequence& asked : later) {
        if (asked.request != id) continue;
        ++num_all;
        num_forced += is_forced(asked) ? 1 : 0;
      }
      num_mixed += num_forced > 0 ? 1 : 0;
      EXPECT_TRUE(num_all == 0 || num_forced < num_all);
    }
  });
  EXPECT_GT(num_mixed, 0);
  EXPECT_OK(results_[0]);
}

// Numbers of tokens that the executor drafted within a step.
TEST_F(BadDraftsTest, WrongNumbersEndTheirRequestAndNoOther) {
  const std::pair<std::vector<int>, const char*> wrong[] = {
      {{4}, "num_drafted[0] must be in [0, 3], got 4"},
      {{0, 0}, "num_drafted must be empty, or of 1 samples, got 2 numbers"},
      {{-1}, "num_drafted[0] must be in [0, 3], got -1"}};
  Request request = Drafted(Samples());
  request.params.num_return_sequences = 1;
  for (const auto& [counts, message] : wrong) {
    SCOPED_TRACE(message);
    Run(request, [&](auto, StepResult* result) {
      for (SelectionResult& selection : result->selections) {
        if (selection.request != kVictim || selection.num_drafted.empty()) {
          continue;
        }
        selection.num_drafted = counts;
      }
    });
    EXPECT_OK(results_[0]);
    EXPECT_THAT(results_[1],
                StatusIs(absl::StatusCode::kInternal, HasSubstr(message)));
  }
}

// Without it, results cannot be assigned to requests.
TEST(BadAnswersTest, AnswersMissingEndTheRequestsOfTheStep) {
  const std::function<void(StepResult*)> spoils[] = {
      [](StepResult* result) { result->selections.pop_back(); },
      [](StepResult* result) {
        std::swap(result->selections[0], result->selections[1]);
      },
      [](StepResult* result) { result->selections.clear(); },
      [](StepResult* result) { result->selections[0].request = RequestId{99}; },
      [](StepResult* result) {
        result->selections.push_back(result->selections[0]);
      },
      [](StepResult* result) { result->scorings.push_back({}); }};
  for (const auto& spoil : spoils) {
    ToyModel model({});
    Scheduler scheduler(model.description(), {.validate_steps = true});
    Request request = Beams();
    ASSERT_OK(ValidateRequest(model.description(), &request));
    std::vector<absl::StatusOr<Result>> results(3);
    const auto submit = [&](int i) {
      scheduler.Submit(
          RequestId{i}, PreparedRequest(request),
          [&results, i](auto result) { results[i] = std::move(result); });
    };
    submit(0);
    submit(1);
    ASSERT_OK_AND_ASSIGN(StepResult result, RunPlan(model, scheduler.Plan()));
    spoil(&result);
    submit(2);
    scheduler.Advance(std::move(result));
    for (const int i : {0, 1}) {
      EXPECT_THAT(results[i],
                  StatusIs(absl::StatusCode::kInternal, HasSubstr("step")));
    }
    RunToEnd(scheduler, model);
    EXPECT_OK(results[2]);
    EXPECT_EQ(scheduler.pool().num_held(), 0);
  }
}

}  // namespace
}  // namespace espalier
