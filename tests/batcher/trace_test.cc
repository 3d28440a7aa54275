// The trace of a scheduler matches its searches: the tree holds every
// candidate once, the winners' paths spell the hypotheses, pages are those of
// living sequences. And tracing changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "trace/trace_tree.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

// Events by request.
class Recorder : public TraceSink {
 public:
  void On(const TraceEvent& event) override {
    events[RequestOf(event)].push_back(event);
  }
  std::map<RequestId, std::vector<TraceEvent>> events;
};

using Answers = std::vector<std::optional<absl::StatusOr<Result>>>;

struct TracedRun {
  Answers answers;
  Recorder trace;
};

// Runs the requests together; the third is cancelled before step 5.
TracedRun RunTogether(const ToyModelOptions& options,
                      const std::vector<Request>& requests, bool traced,
                      int plans_in_flight) {
  TracedRun run;
  run.answers.resize(requests.size());
  ToyModel model(options);
  ModelDescription description = model.description();
  SchedulerOptions scheduler_options;
  scheduler_options.validate_steps = true;
  if (traced) scheduler_options.trace = Unowned(&run.trace);
  Scheduler scheduler(description, scheduler_options);
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                     PreparedRequest(requests[i]),
                     [&answer = run.answers[i]](auto result) {
                       answer = std::move(result);
                     });
  }
  const auto cancel = [&](int step) {
    if (step == 5) scheduler.Cancel(RequestId{2}, absl::CancelledError("gone"));
  };
  RunToEnd(scheduler, model, cancel, plans_in_flight);
  return run;
}

// Beam searches, and samples in place of every third, as
// ValidateRequest leaves them.
std::vector<Request> AnyRequests(int count, uint32_t seed,
                                 const ModelDescription& model) {
  std::vector<Request> requests = RandomRequests(count, seed, model);
  for (size_t i = 0; i < requests.size(); i += 3) {
    GenerationParams& params = requests[i].params;
    params.num_beams = 1;
    params.num_return_sequences = 1 + static_cast<int>(seed % 4);
    params.best_of = params.num_return_sequences + static_cast<int>(i % 2);
    params.do_sample = true;
    // Low, so that samples are the same for some time.
    params.temperature = 0.5;
    params.seed = seed;
  }
  return requests;
}

// Reads one request's events and checks them against its answer.
class EventReader {
 public:
  explicit EventReader(const Request& request) : request_(request) {}

  void Read(const std::vector<TraceEvent>& events,
            const absl::StatusOr<Result>& answer) {
    ASSERT_GE(events.size(), 2);
    ASSERT_TRUE(std::holds_alternative<TraceRequest>(events.front()));
    EXPECT_EQ(std::get<TraceRequest>(events.front()).prompt_tokens,
              request_.prompt_tokens);
    for (size_t i = 1; i + 1 < events.size(); ++i) {
      if (const auto* pages = std::get_if<TracePages>(&events[i])) {
        ReadPages(*pages);
      } else if (const auto* legal = std::get_if<TraceLegal>(&events[i])) {
        ReadLegal(*legal);
      } else {
        ReadCandidate(std::get<TraceCandidate>(events[i]));
      }
    }
    ASSERT_TRUE(std::holds_alternative<TraceEnd>(events.back()));
    ReadEnd(std::get<TraceEnd>(events.back()), answer);
  }

 private:
  // Comes first in a step.
  void ReadPages(const TracePages& event) {
    EXPECT_EQ(event.step, ++step_);
    parents_ = std::exchange(living_, {});
    std::set<PageId> held(event.shared.begin(), event.shared.end());
    std::map<int, int> told;  // slot to node
    for (const TraceSlotPages& slot : event.slots) {
      held.insert(slot.pages.begin(), slot.pages.end());
      EXPECT_FALSE(event.shared.empty() && slot.pages.empty());
      if (slot.node != kTraceRoot) told[slot.slot] = slot.node;
    }
    EXPECT_EQ(told, parents_) << "step " << step_;
    EXPECT_LE(held.size(), event.num_held);
    EXPECT_LE(event.num_held, event.num_pages);
  }

  // All sequences that live have a row.
  void ReadLegal(const TraceLegal& event) {
    std::set<int> nodes, living;
    for (const TraceLegalRow& row : event.rows) nodes.insert(row.node);
    for (const auto& [slot, node] : parents_) living.insert(node);
    if (step_ == 1) living.insert(kTraceRoot);
    EXPECT_EQ(nodes, living);
    EXPECT_EQ(nodes.size(), event.rows.size());
  }

  void ReadCandidate(const TraceCandidate& event) {
    EXPECT_EQ(event.step, step_);
    ASSERT_EQ(event.node, nodes_.size());
    if (event.parent == kTraceRoot) {
      EXPECT_EQ(event.step, 1);
      EXPECT_EQ(event.parent_slot, 0);
    } else {
      EXPECT_EQ(parents_.at(event.parent_slot), event.parent);
    }
    const float before =
        event.parent == kTraceRoot ? 0 : nodes_[event.parent].cum_log_prob;
    EXPECT_NEAR(event.log_prob, event.cum_log_prob - before, 1e-5);
    EXPECT_EQ(event.slot.has_value(), event.fate == CandidateFate::kKept);
    EXPECT_EQ(event.score.has_value(), event.fate == CandidateFate::kFinished);
    EXPECT_FALSE(event.why.empty());
    if (event.slot) {
      EXPECT_TRUE(living_.emplace(*event.slot, event.node).second)
          << "slot " << *event.slot << " is taken";
    }
    nodes_.push_back(event);
  }

  std::vector<TokenId> Path(int node) const {
    std::vector<TokenId> tokens;
    for (; node != kTraceRoot; node = nodes_[node].parent) {
      tokens.insert(tokens.begin(), nodes_[node].token);
    }
    return tokens;
  }

  void ReadEnd(const TraceEnd& end, const absl::StatusOr<Result>& answer) {
    if (!answer.ok()) {
      EXPECT_EQ(end.error, answer.status());
      EXPECT_TRUE(end.hypotheses.empty());
      return;
    }
    EXPECT_EQ(end.error, std::nullopt);
    // A step of a model may decide several of a search.
    EXPECT_GE(step_, answer->usage.num_steps);
    if (!request_.params.speculate.has_value()) {
      EXPECT_EQ(step_, answer->usage.num_steps);
    }
    EXPECT_TRUE(living_.empty());
    ASSERT_EQ(end.hypotheses.size(), answer->hypotheses.size());
    std::set<int> told;
    for (size_t i = 0; i < end.hypotheses.size(); ++i) {
      const Hypothesis& hypothesis = answer->hypotheses[i];
      EXPECT_EQ(Path(end.hypotheses[i].node), hypothesis.tokens);
      EXPECT_EQ(end.hypotheses[i].score, hypothesis.score);
      EXPECT_TRUE(told.insert(end.hypotheses[i].node).second);
    }
  }

  const Request& request_;
  int step_ = 0;
  std::vector<TraceCandidate> nodes_;
  std::map<int, int> living_;   // slot to node, after the newest step
  std::map<int, int> parents_;  // before it
};

TEST(TraceTest, TracesOfBeamsThatSpeculateMatchTheirSearches) {
  int64_t num_accepted = 0;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    ToyModelOptions options;
    options.seed = seed;
    options.impossible_percent = 85;
    options.num_tokens_read = 2;
    options.num_pages = 2000;
    options.has_shareable_pages = true;
    options.eos_boost = -1;
    std::vector<Request> requests(
        8, {{1, 2, 3, 4, static_cast<TokenId>(seed)}, {}});
    for (size_t i = 0; i < requests.size(); ++i) {
      GenerationParams& params = requests[i].params;
      params.num_beams = 2 + static_cast<int>(i % 4);
      params.num_return_sequences = params.num_beams;
      params.max_new_tokens = 30;
      params.speculate = {.method = SpeculationMethod::kSuffix};
    }
    const TracedRun traced = RunTogether(options, requests, true, 1);
    for (size_t i = 0; i < requests.size(); ++i) {
      const absl::StatusOr<Result>& answer = *traced.answers[i];
      if (answer.ok()) num_accepted += answer->usage.num_accepted_tokens;
      const RequestId id{static_cast<int64_t>(i)};
      EventReader(requests[i]).Read(traced.trace.events.at(id), answer);
    }
  }
  EXPECT_GT(num_accepted, 20);
}

TEST(TraceTest, TracesMatchTheirSearches) {
  for (const int plans_in_flight : {1, 2}) {
    for (uint32_t seed = 0; seed < 12; ++seed) {
      ToyModelOptions options;
      options.seed = seed;
      options.eos_boost = static_cast<float>(seed % 4);
      options.impossible_percent = seed % 3 == 2 ? 20 : 0;
      options.num_pages = 2000;
      const std::vector<Request> requests =
          AnyRequests(8, seed, ToyModel(options).description());
      const TracedRun traced =
          RunTogether(options, requests, true, plans_in_flight);
      const TracedRun silent =
          RunTogether(options, requests, false, plans_in_flight);
      EXPECT_EQ(traced.trace.events.size(), requests.size());
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(traced.answers[i].has_value());
        const absl::StatusOr<Result>& answer = *traced.answers[i];
        ASSERT_EQ(answer.status(), silent.answers[i]->status());
        if (answer.ok()) {
          EXPECT_TRUE(SameResult(*answer, **silent.answers[i]));
        }
        const RequestId id{static_cast<int64_t>(i)};
        EventReader(requests[i]).Read(traced.trace.events.at(id), answer);
      }
    }
  }
}

// A model whose pages requests share.
class TracedModel : public ToyModel {
 public:
  explicit TracedModel(const ToyModelOptions& options)
      : ToyModel(options), shared_(ToyModel::description()) {
    shared_.has_shareable_pages = true;
  }
  const ModelDescription& description() const override { return shared_; }

 private:
  ModelDescription shared_;
};

// Runs beam searches of these prompts; returns the statistics.
SchedulerStats RunSearches(const std::vector<std::vector<TokenId>>& prompts,
                           int num_pages, int max_running, Recorder* trace) {
  TracedModel model({.page_size = 4, .num_pages = num_pages});
  SchedulerOptions options;
  options.max_running = max_running;
  options.validate_steps = true;
  options.trace = Unowned(trace);
  Scheduler scheduler(model.description(), options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request{prompts[i], {}};
    request.params.num_beams = 2;
    request.params.max_new_tokens = 30;
    request.params.ignore_eos = true;
    EXPECT_OK(ValidateRequest(model.description(), &request));
    scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                     PreparedRequest(request),
                     [](const auto& result) { EXPECT_OK(result); });
  }
  RunToEnd(scheduler, model);
  return scheduler.stats();
}

TEST(TraceTest, PreemptionsAndCopiesAreThoseCounted) {
  Recorder trace;
  const SchedulerStats stats = RunSearches(
      {{1, 4, 5, 6, 7, 8, 9}, {2, 4, 5, 6, 7, 8, 9}, {3, 4, 5, 6, 7, 8, 9}}, 20,
      3, &trace);
  EXPECT_GT(stats.num_preemptions, 0);
  int64_t num_preempted = 0, num_cached = 0, num_fed = 0, num_copies = 0;
  TraceTrees trees;
  for (const auto& [id, events] : trace.events) {
    for (const TraceEvent& event : events) {
      EXPECT_OK(trees.Add(event));
      if (const auto* resumed = std::get_if<TraceResumed>(&event)) {
        num_cached += resumed->num_cached_tokens;
        num_fed += resumed->num_fed_tokens;
      } else if (const auto* pages = std::get_if<TracePages>(&event)) {
        num_copies += std::ssize(pages->copied);
      }
      num_preempted += std::holds_alternative<TracePreempted>(event);
    }
  }
  EXPECT_GT(num_preempted, 0);
  EXPECT_LE(num_preempted, stats.num_preemptions);
  EXPECT_EQ(num_cached, stats.num_tokens_shared_again);
  EXPECT_EQ(num_fed, stats.num_tokens_fed_again);
  EXPECT_EQ(num_copies, stats.num_tail_copies);
}

TEST(TraceTest, CachedPagesAreThoseThatAnotherFilled) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 18; ++i) prompt.push_back(1 + i % 10);
  Recorder trace;
  const SchedulerStats stats = RunSearches({prompt, prompt}, 100, 1, &trace);
  EXPECT_EQ(stats.num_cached_tokens,
            17);  // four pages, and a copy of one token
  for (const auto& [id, events] : trace.events) {
    for (const TraceEvent& event : events) {
      const auto* pages = std::get_if<TracePages>(&event);
      if (pages == nullptr) continue;
      EXPECT_EQ(pages->cached.size(), id.value == 0 ? 0 : 4);
      for (const PageId page : pages->cached) {
        EXPECT_EQ(std::ranges::count(pages->shared, page), 1);
      }
    }
  }
}

TEST(TraceTest, ARequestThatNeverBeganIsNotTraced) {
  ToyModelOptions options;
  options.num_pages = 1;
  ToyModel model(options);
  Recorder trace;
  SchedulerOptions scheduler_options;
  scheduler_options.trace = Unowned(&trace);
  Scheduler scheduler(model.description(), scheduler_options);
  Request request{.prompt_tokens = {1, 2, 3, 4, 5}, .params = {}};
  ASSERT_OK(ValidateRequest(model.description(), &request));
  scheduler.Submit(RequestId{0}, PreparedRequest(request), [](auto result) {
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kResourceExhausted,
                                 ::testing::HasSubstr("never fit")));
  });
  EXPECT_TRUE(trace.events.empty());
}

}  // namespace
}  // namespace espalier
