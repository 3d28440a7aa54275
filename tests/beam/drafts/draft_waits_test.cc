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

class DraftWaitsTest : public ::testing::Test {
 protected:
  int NumWaits(SpeculationMethod method, int num_beams,
               bool has_allowed_sequences = false) {
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
    return group.NumWaitsToDraft();
  }

  PagePool pool_{50, 4};
  SequenceIdSource ids_;
};

// A continuation with drafts is planned before the previous result is read.
TEST_F(DraftWaitsTest, SamplesWithADraftModelWaitForNothing) {
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1), 0);
}

// With a constraint a separate plan requests the drafts, too.
TEST_F(DraftWaitsTest, SamplesWithAConstraintWaitForTheirDrafts) {
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 1, true), 1);
}

// Their paths follow from the previous step's selection, and a separate plan
// requests them.
TEST_F(DraftWaitsTest, BeamsWaitForTheStepBeforeAndForTheirPaths) {
  EXPECT_EQ(NumWaits(SpeculationMethod::kDraft, 4), 2);
}

// The host drafts from history, when it has read the last token.
TEST_F(DraftWaitsTest, DraftsFromHistoryWaitForTheStepBefore) {
  for (const int num_beams : {1, 4}) {
    EXPECT_EQ(NumWaits(SpeculationMethod::kNgram, num_beams), 1);
    EXPECT_EQ(NumWaits(SpeculationMethod::kSuffix, num_beams), 1);
  }
}

// Without drafts such steps wait for the one before, too.
TEST_F(DraftWaitsTest, SamplesThatDoNotRunAheadWaitNoLongerForDrafts) {
  EXPECT_EQ(NumWaits(SpeculationMethod::kNgram, 1, true), 0);
}

}  // namespace
}  // namespace espalier
