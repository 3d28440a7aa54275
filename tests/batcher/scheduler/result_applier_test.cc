#include "batcher/scheduler/result_applier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/scheduler/scheduler_parts.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using Memory = ToyModelOptions::Memory;

// Requests of one seed, and the faults of their results. A model that keeps
// sequences itself checks forks and ends of sequences in each plan.
class FaultyResults {
 public:
  explicit FaultyResults(uint32_t seed)
      : random_(seed),
        options_(
            {.num_tokens_read = 2,
             .page_size = 1 + static_cast<int>(seed % 4),
             .num_pages = 900,
             .has_shareable_pages = seed % 3 > 0,
             .memory = seed % 3 > 0 ? Memory::kPages : Memory::kSequences}),
        toy_(options_),
        parts_(Describe(), {.max_step_tokens = 60, .validate_steps = true}) {
    if (options_.has_shareable_pages) {
      ToyModelOptions draft = options_;
      draft.seed = 7;
      draft_ = *DraftModel::Create(std::make_shared<ToyModel>(draft),
                                   *ThreadPool::Create(1));
    }
    for (int i = 0; i < 6; ++i) AddOne();
  }

  // Returns the number of requests that faults ended.
  int Run() {
    while (!parts_.groups.empty()) {
      if (random_() % 3 == 0 && std::ssize(requests_) < 12) AddOne();
      Step();
      if (::testing::Test::HasFailure()) return 0;
    }
    EXPECT_EQ(parts_.pool.num_in_use(), 0);
    StepPlan ends = parts_.groups.TakeNextPlan();
    EXPECT_OK(RunPlan(toy_, &ends, draft_.get()));
    EXPECT_EQ(toy_.num_sequences(), 0);
    if (draft_ != nullptr) {
      EXPECT_EQ(draft_->num_sequences(), 0);
    }
    return std::ssize(faults_);
  }
  const SchedulerStats& stats() const { return parts_.counts.stats; }

 private:
  ModelDescription Describe() const {
    ModelDescription model = toy_.description();
    model.limits.max_drafted_length = options_.has_shareable_pages ? 900 : 0;
    return model;
  }
  void AddOne() {
    Request request = AnyRequest(random_, parts_.model);
    parts_.Add(std::ssize(requests_), random_() % 2, request);
    requests_.push_back(std::move(request));
  }
  bool IsOneIn(int count) { return random_() % count == 0; }
  // Records the status that a request is to end with, unless it has ended.
  void Expect(RequestId id, absl::Status status) {
    if (parts_.ends[id.value].empty()) faults_.emplace(id, std::move(status));
  }

  void Step() {
    ++parts_.counts.now;
    StepPlan plan = parts_.BeginPlan();
    parts_.writer.SetDraftRoom({.num_tokens = 20, .num_pages = 90});
    for (RunningGroup& running : parts_.groups) {
      parts_.PlanIfRoom(running, &plan);
    }
    parts_.Send(plan);
    absl::StatusOr<StepResult> result = RunPlan(toy_, &plan, draft_.get());
    ASSERT_OK(result);
    const std::set<RequestId> known = Known();
    const PlanInFlight sent = parts_.in_flight.TakeOldest();
    // Cancelled while the plan is in flight.
    if (IsOneIn(6)) {
      RunningGroup& running = parts_.groups[random_() % parts_.groups.size()];
      Expect(running.id, absl::CancelledError("stop"));
      parts_.groups.Finish(running, absl::CancelledError("stop"));
      if (IsOneIn(2)) parts_.groups.EraseDone();
    }
    if (IsOneIn(20)) {
      const absl::Status why = absl::UnavailableError("no device");
      for (const RequestId id : sent.requests) Expect(id, why);
      parts_.applier.Fail(sent, why);
    } else {
      AddFaults(&*result);
      const int64_t num_failures = stats().num_draft_failures;
      const absl::Duration time = stats().forward_time;
      result->forward_time = absl::Milliseconds(3);
      const bool drafts_failed = IsOneIn(4);
      if (drafts_failed) result->draft_status = absl::InternalError("draft");
      parts_.applier.Apply(sent, &*result);
      EXPECT_EQ(stats().forward_time - time, absl::Milliseconds(3));
      EXPECT_EQ(stats().num_draft_failures - num_failures, drafts_failed);
      for (const SelectionResult& selection : result->selections) {
        const RunningGroup* const running =
            parts_.groups.Find(selection.request);
        if (running == nullptr) continue;
        EXPECT_EQ(running->times.last_token, parts_.counts.now);
      }
    }
    CheckEnds(known);
    parts_.groups.EraseDone();
    for (const RunningGroup& running : parts_.groups) {
      EXPECT_FALSE(running.group->has_plan_in_flight()) << running.id;
      EXPECT_FALSE(running.group->outstanding()) << running.id;
      EXPECT_FALSE(running.group->has_scored_all()) << running.id;
    }
  }

  // Groups that a plan has named.
  std::set<RequestId> Known() const {
    std::set<RequestId> known;
    for (const RunningGroup& running : parts_.groups) {
      if (running.is_known) known.insert(running.id);
    }
    return known;
  }

  // An error of a selection, a token outside the vocabulary, and too few
  // log-probabilities.
  void AddFaults(StepResult* result) {
    for (PromptLogprobsResult& scoring : result->scorings) {
      if (scoring.logprobs.empty() || !IsOneIn(12)) continue;
      scoring.logprobs.pop_back();
      Expect(scoring.request, absl::InternalError(""));
    }
    for (SelectionResult& selection : result->selections) {
      if (IsOneIn(25)) {
        selection.error = absl::DataLossError("a row of NaN");
        Expect(selection.request, selection.error);
      } else if (IsOneIn(25) && !selection.candidates.empty()) {
        selection.candidates[0].token = parts_.model.vocab_size;
        Expect(selection.request, absl::InternalError(""));
      }
    }
  }

  void CheckEnds(const std::set<RequestId>& known) {
    std::multiset<RequestId> ended;
    for (const RunningGroup& running : parts_.groups) {
      EXPECT_EQ(running.group->done(), !parts_.ends[running.id.value].empty());
    }
    for (const auto& [id, ends] : parts_.ends) {
      if (ends.empty() || !checked_.insert(RequestId{id}).second) continue;
      ASSERT_EQ(ends.size(), 1) << "ends of request " << id;
      if (known.contains(RequestId{id})) ended.insert(RequestId{id});
      const auto fault = faults_.find(RequestId{id});
      if (fault == faults_.end()) {
        parts_.ExpectEndAsAlone(id, options_, requests_[id]);
        continue;
      }
      EXPECT_EQ(ends[0].status().code(), fault->second.code());
      if (!fault->second.message().empty()) {
        EXPECT_EQ(ends[0].status(), fault->second);
      }
    }
    for (const auto& [id, status] : faults_) {
      EXPECT_EQ(parts_.ends[id.value].size(), 1) << id << ": " << status;
    }
    const std::vector<RequestId>& named = parts_.groups.next_plan()->ended;
    EXPECT_EQ(std::multiset<RequestId>(named.begin(), named.end()), ended);
    EXPECT_EQ(stats().num_ended(), std::ssize(checked_));
  }

  std::mt19937 random_;
  const ToyModelOptions options_;
  ToyModel toy_;
  std::unique_ptr<DraftModel> draft_;  // or null
  SchedulerParts parts_;
  std::vector<Request> requests_;
  std::map<RequestId, absl::Status> faults_;
  std::set<RequestId> checked_;
};

// Each request ends once: with its own fault, or as it ends alone.
TEST(ResultApplierTest, AFaultEndsItsOwnRequestAndNoOther) {
  int num_faults = 0;
  int64_t num_verified = 0;
  for (uint32_t seed = 0; seed < Cases(400u, 40u) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    FaultyResults results(seed);
    num_faults += results.Run();
    num_verified += results.stats().num_drafted_tokens;
  }
  EXPECT_GT(num_faults, 50);
  EXPECT_GT(num_verified, 50);
}

}  // namespace
}  // namespace espalier
