// Results of requests that end at their deadline, in any state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "beam/strategy/selection_options.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/stream_fixture.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "trace/trace.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

// The sequences of a search after each of its steps.
using States = std::vector<std::vector<Hypothesis>>;

class StateRecorder : public SearchWatcher {
 public:
  explicit StateRecorder(States* states) : states_(*states) {}

  void OnStep(const DecodeStrategy& strategy, const TokenLogProbs*) override {
    std::vector<Hypothesis>& now = states_.emplace_back();
    for (const SequenceState& state : strategy.States()) {
      now.push_back({.tokens = strategy.tree().Path(state.node),
                     .score = state.score,
                     .cum_log_prob = state.cum_log_prob,
                     .finish_reason = state.finish_reason.value_or(
                         FinishReason::kDeadline)});
    }
  }
  void OnFinishEarly(const DecodeStrategy& strategy) override {
    EXPECT_TRUE(strategy.done());
  }

 private:
  States& states_;
};

ToyModelOptions RoomyModel() {
  ToyModelOptions options;
  options.eos_boost = 1;
  options.num_pages = 1000;
  return options;
}

// One request's run without a deadline.
struct Unlimited {
  States states;
  absl::StatusOr<Result> result;
};

Unlimited RunUnlimited(const Request& request) {
  ToyModel model(RoomyModel());
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Unlimited run;
  scheduler.Submit(
      RequestId{0}, PreparedRequest(request),
      [&](absl::StatusOr<Result> result) { run.result = std::move(result); },
      std::make_unique<StateRecorder>(&run.states));
  RunToEnd(scheduler, model);
  return run;
}

// Returns the request's result with a limit of `num_tokens`. Only a search with
// one beam differs: there, candidates of the last step finish.
std::optional<Result> RunShort(Request request, int num_tokens) {
  request.params.max_new_tokens = num_tokens;
  absl::StatusOr<Result> result = RunAlone(RoomyModel(), request);
  if (!result.ok()) return std::nullopt;
  for (Hypothesis& hypothesis : result->hypotheses) {
    if (hypothesis.finish_reason == FinishReason::kLength) {
      hypothesis.finish_reason = FinishReason::kDeadline;
    }
  }
  return *std::move(result);
}

bool IsSingleBeamSearch(const GenerationParams& params) {
  return params.num_beams > 1 && !params.stochastic &&
         params.num_beam_groups == 1;
}

// The best of what there is, as Hypothesis ranks.
std::vector<Hypothesis> BestOf(std::vector<Hypothesis> states, int64_t count) {
  std::ranges::stable_partition(states, [](const Hypothesis& state) {
    return state.finish_reason != FinishReason::kDeadline;
  });
  std::ranges::stable_sort(
      states, [](const auto& a, const auto& b) { return a.score > b.score; });
  if (std::ssize(states) > count) states.resize(count);
  return states;
}

void ExpectSame(const std::vector<Hypothesis>& a,
                const std::vector<Hypothesis>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << i;
    EXPECT_EQ(a[i].score, b[i].score) << i;
    EXPECT_EQ(a[i].cum_log_prob, b[i].cum_log_prob) << i;
    EXPECT_EQ(a[i].finish_reason, b[i].finish_reason) << i;
  }
}

// Outcome of a request with a deadline, and its states after each step.
struct Ended {
  States states;
  std::optional<absl::StatusOr<Result>> result;
  bool was_preempted = false;  // one was when the deadline passed
};

// The request among others, in a pool so small that some are preempted; its
// deadline passes before plan `moment` is written.
Ended RunToDeadline(const std::vector<Request>& requests, int i, int moment,
                    int plans_in_flight) {
  ToyModelOptions options = RoomyModel();
  int64_t most = 0;
  for (const Request& request : requests) {
    most = std::max(most, GroupPages::WorstCase(request, options.page_size));
  }
  options.num_pages = static_cast<int>(most);
  ToyModel model(options);
  Scheduler scheduler(model.description(),
                      {.max_step_tokens = 20, .validate_steps = true});
  std::vector<Ended> ended(requests.size());
  for (size_t k = 0; k < requests.size(); ++k) {
    PreparedRequest prepared(requests[k]);
    if (k == i) prepared.request.params.deadline_ms = 1 + moment;
    scheduler.Submit(
        RequestId{static_cast<int64_t>(k)}, std::move(prepared),
        [&, k](absl::StatusOr<Result> result) {
          ASSERT_FALSE(ended[k].result.has_value()) << "answered twice";
          ended[k].result = std::move(result);
        },
        std::make_unique<StateRecorder>(&ended[k].states));
  }
  RunToEnd(
      scheduler, model,
      [&](int step) {
        const bool had_ended = ended[i].result.has_value();
        if (step == moment)
          ended[i].was_preempted = scheduler.num_preempted() > 0;
        scheduler.ExpireDeadlines(Deadlines::Time() +
                                  std::chrono::milliseconds(step + 1));
        EXPECT_TRUE(step < moment || ended[i].result.has_value());
        EXPECT_TRUE(step == moment || had_ended == ended[i].result.has_value());
      },
      plans_in_flight);
  ExpectNothingHeld(scheduler);
  EXPECT_FALSE(scheduler.first_deadline().has_value());
  for (size_t k = 0; k < requests.size(); ++k) {
    if (k == i) continue;
    const absl::StatusOr<Result> alone = RunAlone(RoomyModel(), requests[k]);
    EXPECT_EQ(ended[k].result->status(), alone.status());
    if (alone.ok()) {
      EXPECT_TRUE(SameResult(**ended[k].result, *alone)) << k;
    }
  }
  return std::move(ended[i]);
}

void ExpectBestSoFar(const Request& request, const Unlimited& unlimited,
                     const Ended& ended) {
  const Result& result = **ended.result;
  const size_t num_steps = ended.states.size();
  EXPECT_EQ(result.usage.num_steps, num_steps);
  EXPECT_EQ(result.usage.num_prompt_tokens, request.prompt_tokens.size());
  ASSERT_LE(num_steps, unlimited.states.size());
  EXPECT_TRUE(result.deadline_passed);
  if (request.params.num_beam_groups == 1 && !request.params.stochastic) {
    const size_t num_there = unlimited.states[num_steps - 1].size();
    EXPECT_EQ(result.hypotheses.size(),
              std::min<size_t>(request.params.num_return_sequences, num_there));
  }
  int64_t num_tokens = 0;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    num_tokens += std::ssize(hypothesis.tokens);
    const size_t num_logprobs =
        request.params.logprobs ? hypothesis.tokens.size() : 0;
    EXPECT_EQ(hypothesis.logprobs.size(), num_logprobs);
  }
  EXPECT_EQ(result.usage.num_generated_tokens, num_tokens);
  if (IsSingleBeamSearch(request.params)) {
    return ExpectSame(result.hypotheses,
                      BestOf(unlimited.states[num_steps - 1],
                             request.params.num_return_sequences));
  }
  if (request.params.allowed_sequences) return;
  const auto limited = RunShort(request, static_cast<int>(num_steps));
  ASSERT_TRUE(limited.has_value());
  EXPECT_TRUE(SameResult(result, *limited));
}

TEST(DeadlineResultsTest, TheResultIsTheBestOfWhatTheRequestHasAlone) {
  int num_early = 0;
  int num_errors = 0;
  int num_preempted = 0;
  for (uint32_t seed = 0; seed < Cases(12u, 3u); ++seed) {
    ToyModel model(RoomyModel());
    const auto requests = RandomRequests(6, 300 + seed, model.description());
    for (int i = 0; i < 6; ++i) {
      const Unlimited unlimited = RunUnlimited(requests[i]);
      for (int moment = 0; moment < 16; moment += 1 + seed % 3) {
        SCOPED_TRACE(
            Concat("seed ", seed, ", request ", i, ", moment ", moment));
        const Ended ended =
            RunToDeadline(requests, i, moment, 1 + (i + moment) % 2);
        ASSERT_TRUE(ended.result.has_value());
        num_preempted += ended.was_preempted;
        if (!ended.result->ok()) {
          if (ended.result->status() == unlimited.result.status()) continue;
          EXPECT_THAT(*ended.result,
                      StatusIs(absl::StatusCode::kDeadlineExceeded,
                               HasSubstr("has passed before the first token")));
          EXPECT_TRUE(ended.states.empty());
          ++num_errors;
        } else if (ended.states.size() < unlimited.states.size()) {
          ++num_early;
          ExpectBestSoFar(requests[i], unlimited, ended);
        } else {
          EXPECT_TRUE(SameResult(**ended.result, *unlimited.result));
          EXPECT_FALSE((*ended.result)->deadline_passed);
        }
      }
    }
  }
  EXPECT_GT(num_early, Cases(100, 20));
  EXPECT_GT(num_errors, Cases(100, 20));
  EXPECT_GT(num_preempted, Cases(5, 0));
}

// Samples that ended with an EOS may be the best of the five at any moment.
// Nothing else in such a result shows that the deadline cut it short.
TEST(DeadlineResultsTest, AResultOfEndedSamplesIsMarkedAllTheSame) {
  ToyModelOptions options = RoomyModel();
  options.eos_boost = 3;
  int num_marked = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Request request = LongRequest(12);
    request.params.ignore_eos = false;
    request.params.do_sample = true;
    request.params.seed = seed;
    request.params.best_of = 5;
    request.params.deadline_ms = 1;
    ToyModel model(options);
    ASSERT_OK(ValidateRequest(model.description(), &request));
    Scheduler scheduler(model.description(), {.validate_steps = true});
    absl::StatusOr<Result> answer;
    scheduler.Submit(
        RequestId{0}, PreparedRequest(request),
        [&](absl::StatusOr<Result> result) { answer = std::move(result); });
    bool was_cut = false;
    RunToEnd(scheduler, model, [&](int step) {
      if (step != 2) return;
      was_cut = scheduler.first_deadline().has_value();
      scheduler.ExpireDeadlines(Deadlines::Time() + std::chrono::hours(1));
    });
    ASSERT_OK(answer);
    ASSERT_EQ(answer->hypotheses.size(), 1);
    EXPECT_EQ(answer->deadline_passed, was_cut);
    num_marked +=
        was_cut && answer->hypotheses[0].finish_reason == FinishReason::kEos;
  }
  EXPECT_GT(num_marked, 0);
}

// The end of each request, in a trace.
class EndRecorder : public TraceSink {
 public:
  void On(const TraceEvent& event) override {
    if (const auto* end = std::get_if<TraceEnd>(&event)) ends.push_back(*end);
  }

  std::vector<TraceEnd> ends;
};

TEST(DeadlineResultsTest, ATraceHasTheHypothesesThatADeadlineMade) {
  ToyModel model(RoomyModel());
  int num_early = 0;
  for (Request& request : RandomRequests(60, 77, model.description())) {
    request.params.deadline_ms = 1;
    const auto sink = std::make_shared<EndRecorder>();
    Scheduler scheduler(model.description(),
                        {.validate_steps = true, .trace = sink});
    absl::StatusOr<Result> answer;
    scheduler.Submit(
        RequestId{0}, PreparedRequest(request),
        [&](absl::StatusOr<Result> result) { answer = std::move(result); });
    RunToEnd(scheduler, model, [&](int step) {
      if (step == 3) {
        scheduler.ExpireDeadlines(Deadlines::Time() + std::chrono::hours(1));
      }
    });
    if (!answer.ok()) continue;
    ASSERT_EQ(sink->ends.size(), 1);
    const std::vector<TraceHypothesis>& traced = sink->ends[0].hypotheses;
    ASSERT_EQ(traced.size(), answer->hypotheses.size());
    for (size_t i = 0; i < traced.size(); ++i) {
      EXPECT_EQ(traced[i].score, answer->hypotheses[i].score);
      EXPECT_EQ(traced[i].finish_reason,
                NameOf(answer->hypotheses[i].finish_reason));
      num_early += traced[i].finish_reason == "deadline";
    }
  }
  EXPECT_GT(num_early, 20);
}

Request WithDeadline(Request request, int64_t deadline_ms) {
  request.params.deadline_ms = deadline_ms;
  return request;
}

// Deadlines of 1 ms; the first request runs, the others wait.
TEST(DeadlineResultsTest, BeforeTheFirstTokenTheErrorSaysWhatItWaitedFor) {
  ToyModel model(SmallModel());
  for (const int max_step_tokens : {3, 100}) {
    Scheduler scheduler(model.description(),
                        {.max_running = 1,
                         .max_step_tokens = max_step_tokens,
                         .validate_steps = true});
    std::vector<absl::Status> answers;
    for (int i = 0; i < 2; ++i) {
      scheduler.Submit(RequestId{i},
                       PreparedRequest(WithDeadline(LongRequest(5), 1)),
                       [&](const absl::StatusOr<Result>& result) {
                         answers.push_back(result.status());
                       });
    }
    const StepPlan plan = scheduler.Plan();
    scheduler.ExpireDeadlines(Deadlines::Time());
    EXPECT_TRUE(answers.empty());
    scheduler.ExpireDeadlines(Deadlines::Time() + std::chrono::seconds(1));
    ASSERT_EQ(answers.size(), 2);
    const std::string passed =
        "deadline_ms, 1, has passed before the first token: ";
    EXPECT_THAT(answers[0],
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         passed + (max_step_tokens == 3
                                       ? "the request's prompt was not fed yet"
                                       : "the request's first step was "
                                         "running")));
    EXPECT_THAT(answers[1], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                     passed + "the request waited for its "
                                              "turn"));
    scheduler.Advance(RunPlan(model, plan));
    ExpectNothingHeld(scheduler);
  }
}

class DeadlineEngineTest : public StreamFixture {
 protected:
  // Until the reader's request has ended, though no step does.
  void RunUntilEnd(Reader& reader) {
    while (!reader.end.has_value()) {
      ReadAll(reader);
      context_.restart();
      if (!reader.end.has_value()) context_.run_one();
    }
  }
};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, DeadlineEngineTest,
                         ::testing::Values(1, 2));

// A deadline that passes before the steps here have run is tried again, longer.
TEST_P(DeadlineEngineTest, AStreamEndsProperlyWhileAStepRuns) {
  const auto requests = RandomStreamRequests(24, 51, model_.description());
  int num_early = 0;
  for (const Request& request : requests) {
    for (int64_t deadline_ms = 1;; deadline_ms *= 2) {
      readers_.clear();
      Reader& reader = Open(WithDeadline(request, deadline_ms));
      RunSteps(3);
      if (!reader.stream.has_value()) Poll();
      ASSERT_TRUE(reader.stream.has_value());
      ASSERT_OK(*reader.stream);
      RunUntilEnd(reader);
      const bool has_output = reader.end->ok();
      if (has_output) {
        ExpectTellsTheResult(request, reader.log);
        num_early += std::ranges::any_of(
            reader.log.result->hypotheses, [](const Hypothesis& h) {
              return h.finish_reason == FinishReason::kDeadline;
            });
      }
      RunSteps(kAllSteps);
      ExpectNothingHeld();
      if (has_output || !absl::IsDeadlineExceeded(*reader.end)) break;
    }
  }
  EXPECT_GT(num_early, 5);
}

TEST_P(DeadlineEngineTest, ADeadlineThatDoesNotPassKeepsNothing) {
  Reader& reader = Open(WithDeadline(LongRequest(5), kMaxDeadlineMs));
  RunSteps(kAllSteps);
  ReadAll(reader);
  ASSERT_TRUE(reader.log.result.has_value());
  EXPECT_EQ(reader.log.result->hypotheses[0].finish_reason,
            FinishReason::kLength);
  context_.restart();
  context_.run();  // would wait for a timer
  ExpectNothingHeld();
}

TEST(DeadlineLifetimeTest, AContextMayEndBeforeItsEngineWhileATimerWaits) {
  ToyModel model(SmallModel());
  ManualExecutor steps(&model, 1);
  auto context = std::make_unique<asio::io_context>();
  Engine engine = MakeEngine(context->get_executor(), &steps, Validated());
  std::optional<absl::StatusOr<Result>> answer;
  asio::co_spawn(*context,
                 engine.Generate(WithDeadline(LongRequest(5), 1 << 30)),
                 [&](std::exception_ptr, absl::StatusOr<Result> result) {
                   answer = std::move(result);
                 });
  context->poll();
  EXPECT_EQ(steps.num_started(), 1);
  context = nullptr;
  EXPECT_FALSE(answer.has_value());  // its coroutine is gone with the context
}

}  // namespace
}  // namespace espalier
