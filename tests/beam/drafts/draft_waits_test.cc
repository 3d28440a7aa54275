// Number of results that a group's steps with drafts wait for, beyond those of
// its other steps (SequenceGroup::NumWaitsToDraft).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "beam/sequence_group.h"
#include "tests/beam/drafts/drafting_model.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::DraftingModel;

// Abilities of executors: none; drafting in the step that verifies; and
// drafting before the previous result is read, which needs the former.
struct Abilities {
  bool drafts_ahead;
  bool drafts_before_steps;
};
constexpr Abilities kPlain = {false, false};
constexpr Abilities kBeforeSteps = {false, true};
constexpr Abilities kAhead = {true, true};

class DraftWaitsTest : public ::testing::Test {
 protected:
  int NumWaits(SpeculationMethod method, int num_beams,
               const Abilities& abilities, bool has_allowed_sequences = false) {
    Request request = {{1, 2, 3, 4, 5, 6}, {}};
    request.params.max_new_tokens = 20;
    request.params.num_beams = num_beams;
    request.params.speculate = {method};
    if (has_allowed_sequences) request.params.allowed_sequences = {{7, 8, 9}};
    EXPECT_OK(ValidateRequest(DraftingModel(), &request));
    const SequenceGroup group(RequestId{1}, PreparedRequest(std::move(request)),
                              &pool_, &ids_);
    EXPECT_TRUE(group.speculates());
    EXPECT_EQ(group.drafts_by_model(), method == SpeculationMethod::kDraft);
    return group.NumWaitsToDraft(abilities.drafts_ahead,
                                 abilities.drafts_before_steps);
  }

  PagePool pool_{50, 4};
  SequenceIdSource ids_;
};

// A continuation with drafts is planned before the previous result is read.
TEST_F(DraftWaitsTest, SamplesThatADraftModelDraftsAheadWaitForNothing) {
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1, kAhead), 0);
}

// The plan that requests drafts also verifies them, or one more plan does.
TEST_F(DraftWaitsTest, SamplesThatItDoesNotDraftAheadWaitForTheStepBefore) {
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1, kBeforeSteps), 1);
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1, kPlain), 2);
}

// Their paths follow from the previous step's selection, and a separate plan
// requests them, whatever the executor supports.
TEST_F(DraftWaitsTest, BeamsWaitForTheStepBeforeAndForTheirPaths) {
  for (const Abilities& abilities : {kPlain, kBeforeSteps, kAhead}) {
    EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 4, abilities), 2);
  }
}

// The host drafts from history, when it has read the last token.
TEST_F(DraftWaitsTest, DraftsFromHistoryWaitForTheStepBefore) {
  for (const Abilities& abilities : {kPlain, kBeforeSteps, kAhead}) {
    for (const int num_beams : {1, 4}) {
      EXPECT_EQ(NumWaits(SpeculationMethod::kNgram, num_beams, abilities), 1);
      EXPECT_EQ(NumWaits(SpeculationMethod::kSuffix, num_beams, abilities), 1);
    }
  }
}

// Without drafts such steps wait for the one before, too.
TEST_F(DraftWaitsTest, SamplesThatDoNotRunAheadWaitNoLongerForDrafts) {
  for (const Abilities& abilities : {kPlain, kBeforeSteps, kAhead}) {
    EXPECT_EQ(NumWaits(SpeculationMethod::kNgram, 1, abilities, true), 0);
  }
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1, kPlain, true), 1);
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1, kBeforeSteps, true), 0);
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1, kAhead, true), 0);
}

}  // namespace
}  // namespace espalier
