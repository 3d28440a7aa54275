// Beams with speculation take the same path as without it: the same states
// after each step and the same results, to the bit, whatever other requests run
// and however much room a step has. Speculation also saves steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "beam/strategy/search_watcher.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

struct BeamSpeculationCase {
  SpeculationMethod method = SpeculationMethod::kNone;
  int num_pages = 400;
  int page_size = 3;
  int max_step_tokens = 256;
  int plans_in_flight = 1;
  int impossible_percent = 70;        // few tokens follow: paths can be guessed
  int draft_impossible_percent = 70;  // the draft model's
  uint64_t draft_seed = 1;            // the draft model's; the model's is 1
  bool cancels = false;
  int num_host_slots = 0;
  int min_percent_saved = 2;  // percent of the steps
};

// All that a watcher sees of a step.
struct SeenSequence {
  std::vector<TokenId> tokens;
  float cum_log_prob = 0;
  float score = 0;
  std::optional<FinishReason> finish_reason;
  friend bool operator==(const SeenSequence&, const SeenSequence&) = default;
};
using SeenSteps = std::vector<std::vector<SeenSequence>>;

class RecordingWatcher : public SearchWatcher {
 public:
  explicit RecordingWatcher(SeenSteps* steps) : steps_(steps) {}
  void OnStep(const DecodeStrategy& strategy, const TokenLogProbs*) override {
    std::vector<SeenSequence>& seen = steps_->emplace_back();
    for (const SequenceState& state : strategy.States()) {
      seen.push_back({strategy.tree().Path(state.node), state.cum_log_prob,
                      state.score, state.finish_reason});
    }
  }
  void OnFinishEarly(const DecodeStrategy&) override {
    ADD_FAILURE() << "nothing ends it";
  }

 private:
  SeenSteps* const steps_;
};

struct StreamedAnswer {
  absl::StatusOr<Result> result;
  SeenSteps steps;
};

class BeamSpeculationTest
    : public ::testing::TestWithParam<BeamSpeculationCase> {
 protected:
  BeamSpeculationTest() {
    options_.num_tokens_read = 2;
    options_.num_pages = GetParam().num_pages;
    options_.page_size = GetParam().page_size;
    options_.has_shareable_pages = true;
    options_.num_host_slots = GetParam().num_host_slots;
    options_.eos_boost = -1;
    options_.impossible_percent = GetParam().impossible_percent;
    description_ = ToyModel(options_).description();
    description_.limits.max_drafted_length = std::numeric_limits<int>::max();
  }

  std::unique_ptr<DraftModel> MakeDraftModel() const {
    if (GetParam().method != SpeculationMethod::kDraft) return nullptr;
    ToyModelOptions draft = options_;
    draft.seed = GetParam().draft_seed;
    draft.impossible_percent = GetParam().draft_impossible_percent;
    draft.page_size = 5;
    draft.num_pages = 300;
    draft.num_host_slots = 0;
    return *DraftModel::Create(std::make_shared<ToyModel>(draft),
                               *ThreadPool::Create(1));
  }

  // `cancelled` are cancelled on the way.
  std::vector<StreamedAnswer> RunAll(const std::vector<Request>& requests,
                                     int plans_in_flight,
                                     const std::vector<bool>& cancelled) const {
    ToyModel model(options_);
    const std::unique_ptr<DraftModel> draft = MakeDraftModel();
    Scheduler scheduler(description_,
                        {.max_step_tokens = GetParam().max_step_tokens,
                         .validate_steps = true});
    std::vector<StreamedAnswer> answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      scheduler.Submit(
          RequestId{static_cast<int64_t>(i)}, PreparedRequest(requests[i]),
          [&answers, i](auto r) { answers[i].result = std::move(r); },
          std::make_unique<RecordingWatcher>(&answers[i].steps));
    }
    const auto cancel_some = [&](int step) {
      for (size_t i = 0; i < requests.size(); ++i) {
        if (!cancelled[i] || step != 3 + i % 7) continue;
        scheduler.Cancel(RequestId{static_cast<int64_t>(i)},
                         absl::CancelledError("enough"));
      }
    };
    RunToEnd(scheduler, model, cancel_some, plans_in_flight, draft.get());
    ExpectNothingHeld(scheduler);
    if (draft != nullptr) {
      EXPECT_EQ(draft->num_sequences(), 0);
      EXPECT_EQ(draft->pages().num_held(), 0);
    }
    return answers;
  }

  ToyModelOptions options_;
  ModelDescription description_;
};

bool SpeculatesByBeams(const GenerationParams& params) {
  return IsBeamSearch(params) && !params.do_sample && !params.stochastic &&
         params.num_beam_groups <= 1;
}

std::vector<Request> RandomBeams(int count, uint32_t seed,
                                 const ModelDescription& model) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  while (std::ssize(requests) < count) {
    Request request = RandomRequest(random, model);
    GenerationParams& params = request.params;
    // Others run beside them.
    if (!SpeculatesByBeams(params) && random() % 8 > 0) continue;
    if (!params.allowed_sequences.has_value()) params.max_new_tokens = 30;
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST_P(BeamSpeculationTest, StepsAndResultsAreThoseWithoutDrafts) {
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  int64_t num_steps = 0;
  int64_t num_plain_steps = 0;
  for (uint32_t seed = 1; seed <= testing::Cases(10u, 2u); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<Request> requests = RandomBeams(30, seed, description_);
    std::mt19937 random(seed);
    std::vector<bool> cancelled(requests.size());
    if (GetParam().cancels) {
      for (size_t i = 0; i < cancelled.size(); ++i) cancelled[i] = i % 3 == 0;
    }
    std::vector<StreamedAnswer> plain;
    for (Request& request : requests) {
      plain.push_back(std::move(RunAll({request}, 1, {false})[0]));
      if (!SpeculatesByBeams(request.params)) continue;
      request.params.speculate = {
          .method = GetParam().method,
          .num_tokens = 1 + static_cast<int>(random() % 8)};
    }
    const std::vector<StreamedAnswer> together =
        RunAll(requests, GetParam().plans_in_flight, cancelled);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      const SeenSteps& seen = together[i].steps;
      if (absl::IsCancelled(together[i].result.status())) {
        ASSERT_LE(seen.size(), plain[i].steps.size());
        EXPECT_TRUE(
            std::equal(seen.begin(), seen.end(), plain[i].steps.begin()));
        continue;
      }
      ASSERT_EQ(plain[i].result.status(), together[i].result.status());
      EXPECT_EQ(seen, plain[i].steps);
      if (!plain[i].result.ok()) continue;
      EXPECT_TRUE(SameHypotheses(*plain[i].result, *together[i].result));
      if (!SpeculatesByBeams(requests[i].params)) continue;
      const Usage& usage = together[i].result->usage;
      EXPECT_LE(usage.num_accepted_tokens, usage.num_drafted_tokens);
      EXPECT_LE(usage.num_steps, plain[i].result->usage.num_steps);
      num_accepted += usage.num_accepted_tokens;
      num_drafted += usage.num_drafted_tokens;
      num_steps += usage.num_steps;
      num_plain_steps += plain[i].result->usage.num_steps;
    }
  }
  EXPECT_GT(num_drafted, testing::Cases(1000, 150));
  // With a fifth of the requests, a difference of a few steps is chance.
  const int min_saved =
      std::max(GetParam().min_percent_saved - testing::Cases(0, 2), 0);
  EXPECT_LE(num_steps, num_plain_steps * (100 - min_saved) / 100);
  EXPECT_GT(50 * num_accepted, min_saved > 0 ? num_drafted : -1);
  RecordProperty("drafted", static_cast<int>(num_drafted));
  RecordProperty("accepted", static_cast<int>(num_accepted));
  RecordProperty("steps", static_cast<int>(num_steps));
  RecordProperty("plain_steps", static_cast<int>(num_plain_steps));
}

std::string NameOfBeamCase(const BeamSpeculationCase& c) {
  return std::string(NameOf(c.method)) + std::to_string(c.impossible_percent) +
         "_pages" + std::to_string(c.num_pages) + "of" +
         std::to_string(c.page_size) + "_step" +
         std::to_string(c.max_step_tokens) + "_ahead" +
         std::to_string(c.plans_in_flight) + "_draft" +
         std::to_string(c.draft_impossible_percent) + "seed" +
         std::to_string(c.draft_seed) + (c.cancels ? "_cancels" : "") +
         (c.num_host_slots > 0 ? "_slots" + std::to_string(c.num_host_slots)
                               : "");
}

using Method = SpeculationMethod;
INSTANTIATE_TEST_SUITE_P(
    All, BeamSpeculationTest,
    ::testing::Values(
        BeamSpeculationCase{.method = Method::kNgram, .min_percent_saved = 1},
        BeamSpeculationCase{.method = Method::kNgram,
                            .impossible_percent = 85,
                            .min_percent_saved = 10},
        BeamSpeculationCase{
            .method = Method::kSuffix, .page_size = 1, .min_percent_saved = 1},
        BeamSpeculationCase{.method = Method::kSuffix,
                            .num_pages = 60,
                            .plans_in_flight = 2,
                            .impossible_percent = 85,
                            .min_percent_saved = 5},
        BeamSpeculationCase{.method = Method::kDraft, .min_percent_saved = 40},
        BeamSpeculationCase{
            .method = Method::kDraft, .num_pages = 80, .min_percent_saved = 30},
        BeamSpeculationCase{
            .method = Method::kDraft, .page_size = 7, .max_step_tokens = 32},
        BeamSpeculationCase{.method = Method::kDraft,
                            .draft_impossible_percent = 60,
                            .min_percent_saved = 29},
        BeamSpeculationCase{.method = Method::kDraft,
                            .plans_in_flight = 2,
                            .impossible_percent = 40,
                            .draft_impossible_percent = 42,
                            .min_percent_saved = 5},
        BeamSpeculationCase{.method = Method::kDraft,
                            .plans_in_flight = 2,
                            .draft_seed = 2,
                            .min_percent_saved = 0},
        BeamSpeculationCase{.method = Method::kDraft,
                            .num_pages = 100,
                            .plans_in_flight = 2,
                            .cancels = true},
        BeamSpeculationCase{.method = Method::kDraft,
                            .num_pages = 80,
                            .num_host_slots = 100,
                            .min_percent_saved = 25}),
    [](const auto& test) { return NameOfBeamCase(test.param); });

}  // namespace
}  // namespace espalier
