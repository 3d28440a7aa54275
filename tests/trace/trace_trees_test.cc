// Trees of traces: the valid orders of events, and the resulting trees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/status_matchers.h"
#include "tests/trace/fake_trace.h"
#include "trace/trace_tree.h"

namespace espalier {
namespace {

using ::espalier::testing::MakeUpTrace;
using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TraceTreesTest, EventsThatCannotFollowAreRefused) {
  const TraceEvent begin = TraceRequest{};
  const TraceEvent kept = TraceCandidate{.slot = 0};
  const TraceEvent pruned = TraceCandidate{.fate = CandidateFate::kPruned};
  const TraceEvent finished = TraceCandidate{
      .node = 1, .score = -1.f, .fate = CandidateFate::kFinished};
  const TraceEvent end = TraceEnd{.hypotheses = {{.node = 1}}};
  const TraceEvent samples = TraceRequest{.strategy = "samples"};
  const auto after = [](int node, int parent) -> TraceEvent {
    return TraceCandidate{
        .step = node + 1, .node = node, .parent = parent, .slot = 0};
  };
  const std::vector<std::pair<std::vector<TraceEvent>, std::string>> cases = {
      {{kept}, "request 0 has not begun"},
      {{begin, begin}, "request 0 begins twice"},
      {{begin, kept, finished, end, end}, "request 0 has ended"},
      {{begin, TraceCandidate{.node = 1, .slot = 0}}, "node must be 0, got 1"},
      {{begin, TraceCandidate{.parent = 0, .slot = 0}},
       "parent must be a candidate before, got 0"},
      {{begin, TraceCandidate{.step = 2, .slot = 0}},
       "step must be 1 after the root, got 2"},
      {{begin, TraceCandidate{}}, "slot must be there exactly if"},
      {{begin, TraceCandidate{.slot = 0, .score = 1.f}},
       "score must be there exactly if"},
      {{begin, TraceCandidate{.slot = -1}}, "slot must be in [0, "},
      {{begin, TraceCandidate{.parent_slot = 1 << 30, .slot = 0}},
       "parent_slot must be in [0, "},
      {{begin, kept, TraceCandidate{.node = 1, .slot = 0}},
       "slot 0 is taken in step 1"},
      {{begin, kept, finished,
        TraceCandidate{.step = 2, .node = 2, .parent = 1, .slot = 0}},
       "parent must be a candidate that was kept, 1 was finished"},
      {{begin, kept,
        TraceCandidate{.step = 3, .node = 1, .parent = 0, .slot = 0}},
       "step must be 2 after node 0, got 3"},
      {{begin, kept,
        TraceCandidate{
            .step = 2, .node = 1, .parent = 0, .parent_slot = 1, .slot = 0}},
       "parent_slot must be 0, where node 0 lives, got 1"},
      {{begin, TracePages{.step = 2}}, "step must be in (0, 1], got 2"},
      {{begin, TracePages{.slots = {{.node = 4}}}},
       "slots[0].node must be a candidate before, got 4"},
      {{begin, TracePages{}, TracePages{}},
       "step must be above 1, the step of the pages before, got 1"},
      {{begin, TracePages{}, TracePages{.step = 3}},
       "step must be at most 1, got 3"},
      {{begin, kept, TracePages{}, TracePages{}},
       "step must be in (1, 2], got 1"},
      {{begin, kept,
        TracePages{.slots = {{.node = 0}, {.node = kTraceRoot}, {.node = 1}}}},
       "slots[2].node must be a candidate before, got 1"},
      {{begin, kept, finished, TracePreempted{.step = 2, .nodes = {0, 2}}},
       "nodes[1] must be a candidate before, got 2"},
      {{begin, kept, finished, TracePreempted{.step = 2, .nodes = {0, 1}}},
       "nodes[1] must be a candidate that was kept, got 1"},
      {{begin, pruned, TraceEnd{.hypotheses = {{.node = 0}}}},
       "hypotheses[0].node must be a candidate that finished or was kept, got "
       "0"},
      {{begin, TraceEnd{.hypotheses = {{.node = 0}}}},
       "hypotheses[0].node must be a candidate before, got 0"},
      {{TraceLegal{}}, "request 0 has not begun"},
      {{begin, TraceLegal{.rows = {{.node = 0}}}},
       "rows[0].node must be a candidate before, got 0"},
      {{begin, TraceLegal{.rows = {{.node = -2}}}},
       "rows[0].node must be a candidate before, got -2"},
      {{begin, kept, finished, TraceLegal{.rows = {{.node = 0}, {.node = 1}}}},
       "rows[1].node must be a candidate that was kept, got 1"},
      {{begin, kept, TraceLegal{.rows = {{}}}},
       "rows[0].node must have no candidates after it yet, got -1"},
      {{begin, TraceLegal{.rows = {{}, {}}}},
       "rows[1].node must be another of each, got -1 twice"},
      {{begin, TraceLegal{.rows = {{}}}, TraceLegal{.rows = {{}}}},
       "rows[0].node must be another of each, got -1 twice"},
      {{begin, TraceLegal{.rows = {{.state = -1}}}},
       "rows[0].state must be at least 0, got -1"},
      {{begin, TraceLegal{.rows = {{.room = 0}}}},
       "rows[0].room must be at least 1, got 0"},
      {{begin, TraceLegal{.rows = {{.num_legal = -1}}}},
       "rows[0].num_legal must be at least 0, got -1"},
      {{begin, TraceLegal{.rows = {{.legal_log_mass = 0.5f}}}},
       "rows[0].legal_log_mass must be at most 0, got 0.5"},
      {{begin, TraceLegal{.rows = {{.num_legal = 0}}}, kept},
       "parent must have at most 0 tokens after it, its num_legal, got 1"},
      {{begin, TraceLegal{.rows = {{.num_legal = 1}}}, kept,
        TraceCandidate{.node = 1,
                       .token = 9,
                       .score = -1,
                       .fate = CandidateFate::kFinished}},
       "parent must have at most 1 token after it, its num_legal, got 2"},
      // Deadlines: what lives ends by them, and nothing else does.
      {{begin, kept,
        TraceEnd{.hypotheses = {{.node = 0, .finish_reason = "eos"}}}},
       "hypotheses[0].finish_reason must be \"deadline\" or \"stop\" if its "
       "node was kept, "
       "and not \"deadline\" if it finished; node 0 was kept, got \"eos\""},
      {{begin, kept, finished,
        TraceEnd{.hypotheses = {{.node = 1, .finish_reason = "deadline"}}}},
       "node 1 was finished, got \"deadline\""},
      {{begin, kept, finished,
        TraceEnd{.hypotheses = {{.node = 1}, {.node = 1}}}},
       "hypotheses[1].node must be another of each, got 1 twice"},
      {{begin, kept, finished,
        TraceEnd{.hypotheses = {{.node = 1}},
                 .error = absl::DeadlineExceededError("late")}},
       "hypotheses must be empty after an error, there are 1"},
      // Drafts: samples alone have several tokens at a time.
      {{begin, kept, after(1, 0), after(2, 1),
        TraceCandidate{.step = 2, .node = 3, .parent = 0, .slot = 1}},
       "step must be 3 or the one after it, got 2"},
      {{samples, kept, after(1, 0), after(2, 1),
        TraceCandidate{.step = 2, .node = 3, .parent = 0, .slot = 0}},
       "slot 0 is taken in step 2"},
      {{samples, kept, after(1, 0),
        TraceCandidate{.step = 2, .node = 2, .parent = 1, .slot = 0}},
       "step must be 3 after node 1, got 2"}};
  for (const auto& [events, message] : cases) {
    TraceTrees trees;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      ASSERT_OK(trees.Add(events[i])) << message;
    }
    EXPECT_THAT(
        trees.Add(events.back()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

// At a deadline a text may end with a stop string that is complete only as
// nothing follows.
TEST(TraceTreesTest, WhatWasKeptEndsAtADeadlineOrAStop) {
  for (const char* reason : {"deadline", "stop"}) {
    TraceTrees trees;
    ASSERT_OK(trees.Add(TraceRequest{.strategy = "samples"}));
    ASSERT_OK(trees.Add(TracePages{.step = 1}));
    ASSERT_OK(trees.Add(TraceCandidate{.step = 1, .slot = 0}));
    EXPECT_OK(trees.Add(
        TraceEnd{.hypotheses = {{.node = 0, .finish_reason = reason}}}));
  }
}

// The first sample has three tokens before the second has its second one.
TEST(TraceTreesTest, SamplesThatSpeculateGoOnAtPacesOfTheirOwn) {
  const auto token = [](int step, int node, int parent, int slot) {
    return TraceCandidate{.step = step,
                          .node = node,
                          .parent = parent,
                          .parent_slot = parent < 0 ? 0 : slot,
                          .slot = slot};
  };
  TraceTrees trees;
  for (const TraceEvent& event : std::vector<TraceEvent>{
           TraceRequest{.strategy = "samples"}, TracePages{.step = 1},
           token(1, 0, kTraceRoot, 0), token(1, 1, kTraceRoot, 1),
           TracePages{.step = 2}, token(2, 2, 0, 0), token(3, 3, 2, 0),
           token(4, 4, 3, 0), token(2, 5, 1, 1), TracePages{.step = 5},
           token(5, 6, 4, 0), token(3, 7, 5, 1), token(4, 8, 7, 1),
           TraceEnd{
               .hypotheses = {{.node = 6, .finish_reason = "deadline"},
                              {.node = 8, .finish_reason = "deadline"}}}}) {
    ASSERT_OK(trees.Add(event));
  }
  const TraceTree& tree = trees.trees()[0];
  EXPECT_THAT(tree.steps, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 5),
                                      ElementsAre(3, 7), ElementsAre(4, 8),
                                      ElementsAre(6)));
  EXPECT_THAT(tree.Path(8), ElementsAre(1, 5, 7, 8));
  for (const TraceNode& node : tree.nodes) EXPECT_TRUE(node.lit());
}

TEST(TraceTreesTest, LegalTokensStandAtTheNodesThatTheyFollow) {
  const std::vector<TraceEvent> events = MakeUpTrace({.is_constrained = true});
  TraceTrees trees;
  for (const TraceEvent& event : events) ASSERT_OK(trees.Add(event));
  const TraceTree& tree = trees.trees().front();
  int num_rows = 0;
  for (const TraceEvent& event : events) {
    const auto* legal = std::get_if<TraceLegal>(&event);
    if (legal == nullptr) continue;
    for (const TraceLegalRow& row : legal->rows) {
      ++num_rows;
      ASSERT_NE(tree.LegalAfter(row.node), nullptr);
      EXPECT_EQ(*tree.LegalAfter(row.node), row);
    }
  }
  int num_nodes = tree.LegalAfter(kTraceRoot) != nullptr ? 1 : 0;
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    num_nodes += tree.LegalAfter(static_cast<int>(i)) != nullptr ? 1 : 0;
  }
  EXPECT_EQ(num_nodes, num_rows);
  EXPECT_GT(num_rows, 10);
}

TEST(TraceTreesTest, ARefusedCandidateIsNoneOfThoseAfterItsParent) {
  TraceTrees trees;
  for (const TraceEvent& event : std::vector<TraceEvent>{
           TraceRequest{}, TraceLegal{.rows = {{.num_legal = 2}}},
           TraceCandidate{.slot = 0, .token = 7}}) {
    ASSERT_OK(trees.Add(event));
  }
  EXPECT_THAT(trees.Add(TraceCandidate{.node = 1, .slot = 0, .token = 8}),
              StatusIs(kInvalid, HasSubstr("slot 0 is taken in step 1")));
  EXPECT_OK(trees.Add(TraceCandidate{.node = 1, .slot = 1, .token = 9}));
}

TEST(TraceTreesTest, WhatResumesWasPreempted) {
  TraceTrees trees;
  for (const TraceEvent& event : MakeUpTrace({.preempted_before = 2})) {
    if (std::holds_alternative<TracePreempted>(event)) {
      TracePreempted bad = std::get<TracePreempted>(event);
      bad.step = 9;
      EXPECT_THAT(trees.Add(bad),
                  StatusIs(kInvalid, HasSubstr("step must be")));
      bad = std::get<TracePreempted>(event);
      bad.nodes.push_back(999);
      EXPECT_THAT(
          trees.Add(bad),
          StatusIs(kInvalid, HasSubstr("nodes[4] must be a candidate")));
      continue;
    }
    const absl::Status status = trees.Add(event);
    if (std::holds_alternative<TraceResumed>(event)) {
      EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr("not preempted")));
      return;
    }
    EXPECT_OK(status);
  }
  FAIL() << "nothing resumes";
}

}  // namespace
}  // namespace espalier
