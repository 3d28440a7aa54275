// Traces of samples with drafts, and of requests that end at their deadline:
// each can be read back and contains the result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "trace/trace_tree.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

class AllEvents : public TraceSink {
 public:
  void On(const TraceEvent& event) override { events.push_back(event); }
  std::vector<TraceEvent> events;
};

ToyModelOptions TracedModel(uint32_t seed, int num_pages) {
  ToyModelOptions options;
  options.seed = seed;
  options.num_tokens_read = 2;
  options.num_pages = num_pages;
  options.has_shareable_pages = true;
  options.eos_boost = -1;
  return options;
}

struct Traced {
  std::vector<std::optional<absl::StatusOr<Result>>> answers;
  std::vector<TraceEvent> events;
  int64_t num_preemptions = 0;
};

// Runs all together; deadlines have passed before plan `expired_at`.
Traced RunTraced(const ToyModelOptions& options, std::vector<Request> requests,
                 std::optional<int> expired_at = std::nullopt) {
  ToyModel model(options);
  ToyModelOptions small = options;
  small.page_size = 5;
  small.num_pages = 100;
  const auto draft = *DraftModel::Create(std::make_shared<ToyModel>(small),
                                         *ThreadPool::Create(1));
  ModelDescription description = model.description();
  description.limits.max_drafted_length = std::numeric_limits<int>::max();
  AllEvents trace;
  Scheduler scheduler(description,
                      {.validate_steps = true, .trace = Unowned(&trace)});
  Traced run;
  run.answers.resize(requests.size());
  const auto now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_OK(ValidateRequest(description, &requests[i]));
    PreparedRequest prepared(requests[i]);
    prepared.submitted = now;
    scheduler.Submit(RequestId{static_cast<int64_t>(i)}, std::move(prepared),
                     [&answer = run.answers[i]](auto result) {
                       answer = std::move(result);
                     });
  }
  const auto expire = [&](int plan) {
    if (plan == expired_at) {
      scheduler.ExpireDeadlines(now + std::chrono::hours(1));
    }
  };
  RunToEnd(scheduler, model, expire, 1, draft.get());
  run.num_preemptions = scheduler.stats().num_preemptions;
  run.events = std::move(trace.events);
  return run;
}

std::vector<TokenId> TokensOf(const TraceTree& tree, int last) {
  std::vector<TokenId> tokens;
  for (const int node : tree.Path(last)) {
    tokens.push_back(tree.nodes[node].candidate.token);
  }
  return tokens;
}

// Errors: as a reader of the trace gets them.
absl::Status Read(const std::vector<TraceEvent>& events, TraceTrees* trees) {
  for (const TraceEvent& event : events) {
    const absl::Status status = trees->Add(event);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void ExpectTraceOf(const Traced& run) {
  TraceTrees trees;
  ASSERT_OK(Read(run.events, &trees));
  for (const TraceTree& tree : trees.trees()) {
    const auto& answer = *run.answers[tree.request.request.value];
    ASSERT_TRUE(tree.end.has_value());
    if (!answer.ok()) {
      EXPECT_EQ(tree.end->error, answer.status());
      continue;
    }
    ASSERT_EQ(tree.end->hypotheses.size(), answer->hypotheses.size());
    for (size_t i = 0; i < answer->hypotheses.size(); ++i) {
      const Hypothesis& hypothesis = answer->hypotheses[i];
      const TraceHypothesis& told = tree.end->hypotheses[i];
      EXPECT_EQ(TokensOf(tree, told.node), hypothesis.tokens);
      EXPECT_EQ(told.score, hypothesis.score);
      EXPECT_EQ(told.finish_reason, NameOf(hypothesis.finish_reason));
    }
  }
}

Request Samples(uint32_t seed, int num_samples, SpeculationMethod method) {
  Request request{{1, 2, 3, 1, 2, static_cast<TokenId>(1 + seed % 5)}, {}};
  GenerationParams& params = request.params;
  params.do_sample = true;
  params.temperature = 0.5;
  params.seed = seed;
  params.num_return_sequences = num_samples;
  params.best_of = num_samples + seed % 2;
  params.max_new_tokens = 24;
  params.speculate = {.method = method,
                      .num_tokens = 1 + static_cast<int>(seed % 6)};
  return request;
}

std::vector<Request> AllKinds(uint32_t seed) {
  std::vector<Request> requests;
  for (const auto method :
       {SpeculationMethod::kNgram, SpeculationMethod::kSuffix,
        SpeculationMethod::kDraft}) {
    for (const int num_samples : {1, 2, 5}) {
      requests.push_back(Samples(seed + num_samples, num_samples, method));
    }
    Request beams{{1, 2, 3, 1, 2}, {}};
    beams.params.num_beams = beams.params.num_return_sequences = 3;
    beams.params.max_new_tokens = 24;
    beams.params.speculate = {.method = method};
    requests.push_back(beams);
  }
  return requests;
}

TEST(SpeculationTraceTest, TracesOfSamplesAreReadAndSpellTheirAnswers) {
  int64_t num_accepted = 0;
  int64_t num_preemptions = 0;
  for (uint32_t seed = 1; seed <= Cases(8u, 2u); ++seed) {
    for (const int num_pages : {2000, 45}) {
      SCOPED_TRACE(seed);
      const Traced run =
          RunTraced(TracedModel(seed, num_pages), AllKinds(10 * seed));
      ExpectTraceOf(run);
      for (const auto& answer : run.answers) {
        if (answer->ok()) num_accepted += (*answer)->usage.num_accepted_tokens;
      }
      num_preemptions += run.num_preemptions;
    }
  }
  EXPECT_GT(num_accepted, Cases(500, 50));
  EXPECT_GT(num_preemptions, Cases(20, 1));
}

TEST(SpeculationTraceTest, WhatEndsAtItsDeadlineIsReadToo) {
  std::map<FinishReason, int> ends;
  int num_failed = 0;
  for (const int expired_at : {0, 1, 2, 3, 5, 8, 13}) {
    std::vector<Request> requests = AllKinds(expired_at);
    for (Request& request : requests) request.params.deadline_ms = 1000;
    const Traced run = RunTraced(TracedModel(2, 2000), requests, expired_at);
    ExpectTraceOf(run);
    for (const auto& answer : run.answers) {
      num_failed += answer->ok() ? 0 : 1;
      if (!answer->ok()) continue;
      for (const Hypothesis& hypothesis : (*answer)->hypotheses) {
        ++ends[hypothesis.finish_reason];
      }
    }
  }
  EXPECT_GT(ends[FinishReason::kDeadline], 20);
  EXPECT_GT(num_failed, 0);
}

// Errors that a tracer may make in drafts and deadlines.
TEST(SpeculationTraceTest, PlantedFaultsAreSeen) {
  std::vector<Request> requests = {Samples(3, 3, SpeculationMethod::kDraft)};
  requests[0].params.deadline_ms = 1000;
  const Traced run = RunTraced(TracedModel(3, 2000), requests, 3);
  TraceTrees right;
  ASSERT_OK(Read(run.events, &right));
  ASSERT_FALSE(right.trees()[0].end->hypotheses.empty());
  const auto is_refused = [&](const auto& change) {
    // Each of the candidates or ends that can be changed so.
    int num_changed = 0, num_refused = 0;
    for (size_t i = 0; i < run.events.size(); ++i) {
      std::vector<TraceEvent> events = run.events;
      if (!change(&events[i])) continue;
      ++num_changed;
      TraceTrees trees;
      if (!Read(events, &trees).ok()) ++num_refused;
    }
    EXPECT_GT(num_changed, 0);
    return num_refused == num_changed;
  };
  const auto of_candidate = [](const auto& change) {
    return [change](TraceEvent* event) {
      auto* candidate = std::get_if<TraceCandidate>(event);
      if (candidate == nullptr || candidate->parent == kTraceRoot) return false;
      change(candidate);
      return true;
    };
  };
  EXPECT_TRUE(is_refused(of_candidate([](auto* c) { ++c->step; })));
  EXPECT_TRUE(is_refused(of_candidate([](auto* c) { --c->step; })));
  EXPECT_TRUE(is_refused(of_candidate([](auto* c) { c->parent_slot += 7; })));
  EXPECT_TRUE(is_refused(of_candidate([](auto* c) { c->slot.reset(); })));
  EXPECT_TRUE(is_refused([](TraceEvent* event) {
    auto* end = std::get_if<TraceEnd>(event);
    if (end != nullptr) end->hypotheses[0].finish_reason = "eos";
    return end != nullptr;
  }));
  EXPECT_TRUE(is_refused([](TraceEvent* event) {
    auto* end = std::get_if<TraceEnd>(event);
    if (end != nullptr) end->hypotheses.push_back(end->hypotheses[0]);
    return end != nullptr;
  }));
}

}  // namespace
}  // namespace espalier
