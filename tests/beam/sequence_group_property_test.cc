// A group's result is that of its strategy alone: whatever the page size, the
// chunks of its prompt and the other groups in its steps, and whether it waits
// for answers or runs ahead of them. The model reads its
// history from pages, or from the plans' forks and finished sequences, so an
// error in either changes results.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "beam/strategy/make_strategy.h"
#include "tests/beam/group_driver.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::GroupDriver;
using testing::ToyModelOptions;

bool AnyRunAhead() { return *rc::gen::arbitrary<bool>(); }

ToyModelOptions AnyModel(bool run_ahead) {
  ToyModelOptions options;
  options.vocab_size = *rc::gen::inRange(2, 16);
  options.seed = *rc::gen::arbitrary<uint64_t>();
  options.eos_boost = *rc::gen::element(-4.0f, 0.0f, 2.0f, 4.0f);
  options.impossible_percent = *rc::gen::element(0, 0, 20, 70);
  options.page_size = *rc::gen::element(1, 2, 3, 16);
  options.num_pages = 1000;
  if (!run_ahead) {
    options.memory = *rc::gen::element(ToyModelOptions::Memory::kPages,
                                       ToyModelOptions::Memory::kSequences);
  }
  return options;
}

Request AnyRequest(const ToyModelOptions& options) {
  Request request;
  const auto any_token = rc::gen::inRange(0, options.vocab_size);
  request.prompt_tokens = *rc::gen::resize(
      40,
      rc::gen::nonEmpty(rc::gen::container<std::vector<TokenId>>(any_token)));
  GenerationParams& params = request.params;
  params.num_beams = *rc::gen::inRange(1, 7);
  params.num_return_sequences = *rc::gen::inRange(1L, params.num_beams + 1);
  params.max_new_tokens = *rc::gen::inRange(1, 20);
  params.length_penalty = *rc::gen::element(-1.0, 0.0, 1.0);
  params.early_stopping =
      *rc::gen::element(EarlyStopping::kFalse, EarlyStopping::kNever);
  params.eos_token_id = {0};
  return request;
}

// Makes it one of the searches that need the strategy to choose their rows.
void MakeOther(const ToyModelOptions& options, GenerationParams* params) {
  params->seed = *rc::gen::arbitrary<uint64_t>();
  const auto any_token = rc::gen::inRange<int64_t>(1, options.vocab_size);
  const auto any_sequence =
      rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(any_token));
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      params->num_beam_groups = *rc::gen::inRange(2, 4);
      params->num_beams *= params->num_beam_groups;
      params->diversity_penalty = *rc::gen::element(0.0, 0.3, 2.0);
      break;
    case 1:
      params->num_beams += 1;
      params->do_sample = true;
      break;
    case 2:
      params->stochastic = true;
      break;
    case 3:
      params->do_sample = true;
      params->num_return_sequences = params->num_beams;
      params->num_beams = 1;
      break;
    default:
      break;
  }
  if (*rc::gen::inRange(0, 3) > 0) return;
  params->allowed_sequences = *rc::gen::resize(
      *params->max_new_tokens,
      rc::gen::nonEmpty(
          rc::gen::container<std::vector<std::vector<int64_t>>>(any_sequence)));
  for (std::vector<int64_t>& sequence : params->allowed_sequences->Edit()) {
    sequence.resize(std::min<size_t>(sequence.size(), *params->max_new_tokens));
  }
}

void AssertSame(const Result& result, const Request& request,
                const std::vector<Hypothesis>& alone) {
  RC_ASSERT(result.hypotheses.size() == alone.size());
  int64_t num_generated = 0;
  for (size_t i = 0; i < alone.size(); ++i) {
    RC_ASSERT(result.hypotheses[i].tokens == alone[i].tokens);
    RC_ASSERT(result.hypotheses[i].score == alone[i].score);
    num_generated += static_cast<int64_t>(alone[i].tokens.size());
  }
  RC_ASSERT(result.usage.num_prompt_tokens == request.prompt_tokens.size());
  RC_ASSERT(result.usage.num_cached_tokens == 0);
  RC_ASSERT(result.usage.num_generated_tokens == num_generated);
}

void AssertResultIsThatOfTheStrategyAlone(const ToyModelOptions& options,
                                          const Request& request,
                                          GroupDriver& driver,
                                          size_t group_idx) {
  const std::unique_ptr<DecodeStrategy> strategy =
      MakeStrategy(request.params, nullptr, nullptr);
  const absl::StatusOr<int> num_steps = testing::SearchAlone(
      testing::ToyLanguageModel(options, request.prompt_tokens),
      strategy.get());
  RC_ASSERT(driver.status(group_idx) ==
            ExplainNoToken(num_steps.status(), request.params));
  const Result result = driver.group(group_idx).TakeResult();
  AssertSame(result, request, strategy->Hypotheses());
  if (num_steps.ok()) RC_ASSERT(result.usage.num_steps == *num_steps);
}

int AnyChunk() { return *rc::gen::element(1, 2, 5, 7, 100); }

RC_GTEST_PROP(SequenceGroupPropertyTest, ResultIsThatOfTheStrategyAlone, ()) {
  const bool run_ahead = AnyRunAhead();
  const ToyModelOptions options = AnyModel(run_ahead);
  const Request request = AnyRequest(options);
  const int64_t worst = GroupPages::WorstCase(request, options.page_size);
  GroupDriver driver(options, run_ahead);
  RC_ASSERT(Message(driver.Add(request, AnyChunk())) == "");
  RC_ASSERT(Message(driver.Finish()) == "");
  RC_ASSERT(driver.max_held() <= worst);
  RC_CLASSIFY(driver.max_held() == worst, "held its worst case");
  RC_CLASSIFY(!driver.status(0).ok(), "came to a dead end");
  RC_CLASSIFY(driver.num_continuations() > 0, "went ahead");
  AssertResultIsThatOfTheStrategyAlone(options, request, driver, 0);
}

// As above for all other searches, with the engine's own selections.
RC_GTEST_PROP(SequenceGroupPropertyTest, OtherSearchesGiveWhatTheyGiveAlone,
              ()) {
  const bool run_ahead = AnyRunAhead();
  const ToyModelOptions options = AnyModel(run_ahead);
  GroupDriver driver(options, run_ahead);
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(AnyRequest(options));
    MakeOther(options, &requests[i].params);
    RC_ASSERT(Message(driver.Add(requests[i], AnyChunk())) == "");
  }
  RC_ASSERT(Message(driver.Finish()) == "");
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::StatusOr<Result> alone = testing::SearchAsTheEngine(
        testing::ToyLogitsModel(options), requests[i]);
    RC_ASSERT(driver.status(i) ==
              ExplainNoToken(alone.status(), requests[i].params));
    if (!alone.ok()) continue;
    const Result result = driver.group(i).TakeResult();
    // Plain searches have another oracle, whose logarithms round differently.
    RC_ASSERT(result.hypotheses.size() == alone->hypotheses.size());
    for (size_t h = 0; h < result.hypotheses.size(); ++h) {
      RC_ASSERT(result.hypotheses[h].tokens == alone->hypotheses[h].tokens);
    }
    RC_ASSERT(result.threshold == alone->threshold);
  }
  RC_CLASSIFY(driver.num_continuations() > 0, "went ahead");
}

RC_GTEST_PROP(SequenceGroupPropertyTest, RunningAheadMayPauseAtAnyStep, ()) {
  const ToyModelOptions options = AnyModel(true);
  const Request request = AnyRequest(options);
  GroupDriver driver(options, true);
  RC_ASSERT(Message(driver.Add(request, AnyChunk())) == "");
  while (!driver.done()) {
    RC_ASSERT(Message(driver.Step()) == "");
    if (*rc::gen::inRange(0, 3) == 0) {
      RC_ASSERT(Message(driver.CatchUp()) == "");
    }
  }
  RC_ASSERT(Message(driver.Finish()) == "");
  RC_ASSERT(driver.max_held() <=
            GroupPages::WorstCase(request, options.page_size));
  RC_CLASSIFY(driver.num_continuations() > 0, "went ahead");
  AssertResultIsThatOfTheStrategyAlone(options, request, driver, 0);
}

RC_GTEST_PROP(SequenceGroupPropertyTest, GroupsOfOnePlanDoNotMeet, ()) {
  const bool run_ahead = AnyRunAhead();
  const ToyModelOptions options = AnyModel(run_ahead);
  std::vector<Request> requests;
  GroupDriver driver(options, run_ahead);
  const int num_requests = *rc::gen::inRange(2, 5);
  for (int i = 0; i < num_requests; ++i) {
    requests.push_back(AnyRequest(options));
    RC_ASSERT(Message(driver.Add(requests[i], AnyChunk())) == "");
    if (*rc::gen::arbitrary<bool>()) {
      RC_ASSERT(Message(driver.Step()) == "");
    }
  }
  RC_ASSERT(Message(driver.Finish()) == "");
  for (int i = 0; i < num_requests; ++i) {
    AssertResultIsThatOfTheStrategyAlone(options, requests[i], driver, i);
  }
}

RC_GTEST_PROP(SequenceGroupPropertyTest, DroppedAtAnyStepNothingIsHeld, ()) {
  const bool run_ahead = AnyRunAhead();
  const ToyModelOptions options = AnyModel(run_ahead);
  const Request dropped = AnyRequest(options);
  const Request other = AnyRequest(options);
  GroupDriver driver(options, run_ahead);
  RC_ASSERT(Message(driver.Add(dropped, AnyChunk())) == "");
  RC_ASSERT(Message(driver.Add(other, AnyChunk())) == "");
  const int num_steps = *rc::gen::inRange(0, 12);
  for (int i = 0; i < num_steps; ++i) RC_ASSERT(Message(driver.Step()) == "");
  RC_CLASSIFY(!driver.group(0).done(), "dropped before its end");
  driver.Drop(0);
  RC_ASSERT(driver.group(0).done());
  RC_ASSERT(driver.group(0).pages().Tables().empty());
  RC_ASSERT(driver.group(0).num_pending_tokens() == 0);
  RC_ASSERT(Message(driver.Finish()) == "");
  AssertResultIsThatOfTheStrategyAlone(options, other, driver, 1);
}

}  // namespace
}  // namespace espalier
