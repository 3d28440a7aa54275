// Traces of beams with drafts equal those of a search without drafts, except
// for slots; and every traced slot belongs to the search.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <variant>
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

constexpr int kTracedBeams = 3;

class BeamEvents : public TraceSink {
 public:
  void On(const TraceEvent& event) override { events.push_back(event); }
  std::vector<TraceEvent> events;
};

// Returns the trace of one search, with drafts by `method`.
std::vector<TraceEvent> TraceBeams(uint32_t seed, SpeculationMethod method) {
  ToyModelOptions options;
  options.seed = seed;
  options.num_tokens_read = 2;
  options.num_pages = 500;
  options.has_shareable_pages = true;
  options.eos_boost = -1;
  ToyModel model(options);
  const auto draft = *DraftModel::Create(std::make_shared<ToyModel>(options),
                                         *ThreadPool::Create(1));
  ModelDescription description = model.description();
  description.limits.max_drafted_length = std::numeric_limits<int>::max();
  Request request{{1, 2, 3, 1, 2}, {}};
  request.params.num_beams = kTracedBeams;
  request.params.max_new_tokens = 20;
  request.params.speculate = {.method = method};
  EXPECT_OK(ValidateRequest(description, &request));
  BeamEvents trace;
  Scheduler scheduler(description,
                      {.validate_steps = true, .trace = Unowned(&trace)});
  scheduler.Submit(RequestId{0}, PreparedRequest(request),
                   [](auto result) { EXPECT_OK(result); });
  RunToEnd(
      scheduler, model, [](int) {}, 1, draft.get());
  return std::move(trace.events);
}

// Returns the candidates and the end, without their slots.
std::vector<TraceEvent> WithoutSlots(const std::vector<TraceEvent>& events) {
  std::vector<TraceEvent> left;
  for (TraceEvent event : events) {
    if (auto* candidate = std::get_if<TraceCandidate>(&event)) {
      candidate->parent_slot = 0;
      if (candidate->slot.has_value()) candidate->slot = 0;
    }
    const bool is_same = std::holds_alternative<TraceCandidate>(event) ||
                         std::holds_alternative<TraceEnd>(event);
    if (is_same) left.push_back(std::move(event));
  }
  return left;
}

void ExpectSlotsOfTheSearch(const std::vector<TraceEvent>& events) {
  TraceTrees trees;
  for (const TraceEvent& event : events) {
    ASSERT_OK(trees.Add(event));
    if (const auto* candidate = std::get_if<TraceCandidate>(&event)) {
      EXPECT_LT(candidate->parent_slot, kTracedBeams);
      EXPECT_LT(candidate->slot.value_or(0), kTracedBeams);
    }
    const auto* pages = std::get_if<TracePages>(&event);
    if (pages == nullptr) continue;
    std::set<int> slots;
    for (const TraceSlotPages& slot : pages->slots) {
      EXPECT_LT(slot.slot, kTracedBeams);
      EXPECT_TRUE(slots.insert(slot.slot).second);
      EXPECT_EQ(slot.node == kTraceRoot, pages->step == 1);
    }
  }
  EXPECT_EQ(trees.trees()[0].num_slots, kTracedBeams);
}

TEST(BeamDraftsTraceTest, DraftsAreToldBesideTheSlotsOfTheSearch) {
  int num_drafts = 0;
  for (uint32_t seed = 1; seed <= Cases(20u, 4u); ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<TraceEvent> plain =
        TraceBeams(seed, SpeculationMethod::kNone);
    for (const auto method :
         {SpeculationMethod::kNgram, SpeculationMethod::kDraft}) {
      const std::vector<TraceEvent> drafted = TraceBeams(seed, method);
      EXPECT_EQ(WithoutSlots(drafted), WithoutSlots(plain));
      ExpectSlotsOfTheSearch(drafted);
      for (const TraceEvent& event : drafted) {
        const auto* pages = std::get_if<TracePages>(&event);
        if (pages != nullptr) num_drafts += pages->drafts.size();
      }
    }
    ExpectSlotsOfTheSearch(plain);
    for (const TraceEvent& event : plain) {
      const auto* pages = std::get_if<TracePages>(&event);
      EXPECT_TRUE(pages == nullptr || pages->drafts.empty());
    }
  }
  EXPECT_GT(num_drafts, Cases(500, 50));
}

}  // namespace
}  // namespace espalier
