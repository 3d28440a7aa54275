#include "batcher/scheduler/admission.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "batcher/scheduler/turn.h"

namespace espalier {
namespace {

// A pool of 10 pages of 4 tokens; two requests may run.
class AdmissionTest : public ::testing::Test {
 protected:
  AdmissionTest() { model_.vocab_size = 100; }

  void Push(int64_t id, int num_prompt_tokens) {
    Request request;
    request.prompt_tokens.resize(num_prompt_tokens);
    request.params.max_new_tokens = 4;
    request.params.eos_token_id = std::vector<int64_t>();
    PreparedRequest prepared(std::move(request));
    const auto needs = admission_.Fit(&prepared);
    ASSERT_TRUE(needs.ok()) << needs.status().ToString();
    admission_.Push({.turn = Turn::Of(0, 0, RequestId{id}),
                     .prepared = std::move(prepared),
                     .needs = *needs,
                     .done = [this](const auto&) { ++num_ended_; },
                     .watcher = nullptr});
  }

  ModelDescription model_;
  SchedulerOptions options_ = {.max_running = 2, .max_step_tokens = 40};
  TimedStats counts_;
  PagePool pool_{10, 4};
  RunningGroups groups_{options_, &counts_};
  Admission admission_{model_, options_, &pool_, nullptr, &groups_, &counts_};
  int num_ended_ = 0;
};

TEST_F(AdmissionTest, RequestsStartInTheOrderOfTheirTurns) {
  EXPECT_EQ(admission_.AdmitNext(), nullptr);
  for (const int64_t id : {2, 1, 3}) Push(id, 4);
  EXPECT_EQ(admission_.AdmitNext()->id, RequestId{1});
  EXPECT_EQ(admission_.AdmitNext()->id, RequestId{2});
  EXPECT_EQ(admission_.AdmitNext(), nullptr);  // max_running
  EXPECT_EQ(admission_.waiting().size(), 1);
  EXPECT_EQ(groups_.num_running(), 2);
  EXPECT_EQ(num_ended_, 0);
}

TEST_F(AdmissionTest, ARequestThatDoesNotFitHoldsUpLaterOnes) {
  Push(1, 20);
  Push(2, 30);
  Push(3, 1);
  EXPECT_EQ(admission_.AdmitNext()->id, RequestId{1});
  EXPECT_FALSE(admission_.NextFits());
  EXPECT_EQ(admission_.AdmitNext(), nullptr);
  EXPECT_TRUE(admission_.Take(RequestId{2}).has_value());
  EXPECT_EQ(admission_.AdmitNext()->id, RequestId{3});
}

TEST_F(AdmissionTest, NextNeedsItsFirstPagesBesideThoseOfRunningGroups) {
  Push(1, 20);
  Push(2, 8);
  EXPECT_EQ(admission_.NumPagesForNext(0), 0);  // alone it always runs
  admission_.AdmitNext();
  const int64_t num_pages = *admission_.NumPagesForNext(10);
  EXPECT_EQ(num_pages, groups_.NumPagesSoon() + 2 + 1);
  EXPECT_EQ(admission_.NumPagesForNext(num_pages), num_pages);
  EXPECT_FALSE(admission_.NumPagesForNext(num_pages - 1).has_value());
}

}  // namespace
}  // namespace espalier
