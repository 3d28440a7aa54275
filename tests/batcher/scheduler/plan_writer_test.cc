#include "batcher/scheduler/plan_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <numeric>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "tests/batcher/scheduler/scheduler_parts.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

const ToyModelOptions kToy = {
    .num_tokens_read = 2, .num_pages = 900, .has_shareable_pages = true};

// Groups at random places of their requests, with any limits of a step.
struct AnyGroups {
  AnyGroups(uint32_t seed, bool may_score, bool prefix_cache)
      : random(seed),
        scores(may_score),
        toy(kToy),
        parts(Describe(), Options(prefix_cache)) {
    const int num_groups = 2 + random() % 5;
    for (int i = 0; i < num_groups; ++i) {
      AddOne();
      for (int j = random() % 3; j > 0; --j) parts.Step(toy);
    }
  }
  void PreemptOne() {
    if (parts.groups.empty()) return;
    RunningGroup& running = parts.groups[random() % parts.groups.size()];
    running.Preempt({}, parts.groups.next_plan());
    running.group->Resume();
  }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[random() % values.size()];
  }
  ModelDescription Describe() {
    ModelDescription model = toy.description();
    model.limits.max_beams = OneOf({5, 6, 9, 1000});
    model.limits.max_prefill_rows = OneOf({1, 2, 1000});
    return model;
  }
  SchedulerOptions Options(bool prefix_cache) {
    return {.max_step_tokens = OneOf({5, 6, 11, 40}),
            .prefix_cache = prefix_cache};
  }
  // Prompts of one text share pages.
  void AddOne() {
    Request request = AnyRequest(random, parts.model);
    while (!scores && !request.continuations.empty()) {
      request = AnyRequest(random, parts.model);
    }
    if (parts.options.prefix_cache) {
      for (size_t i = 0; i + 1 < request.prompt_tokens.size(); ++i) {
        request.prompt_tokens[i] = 1 + i % 3;
      }
    }
    parts.Add(next_id++, 0, std::move(request));
  }

  std::mt19937 random;
  const bool scores;  // some requests score continuations
  ToyModel toy;
  SchedulerParts parts;
  int64_t next_id = 0;
};

int NumScored(const StepPlan& plan) {
  return std::accumulate(plan.scorings.begin(), plan.scorings.end(), 0,
                         [](int sum, const PlanPromptLogprobs& scoring) {
                           return sum + std::ssize(scoring.tokens);
                         });
}

int NumDrafted(const StepPlan& plan) {
  int count = 0;
  for (const PlanSelection& selection : plan.selections) {
    for (const auto& draft : selection.drafts()) count += std::ssize(draft);
  }
  return count;
}

// Verified drafts are tokens of the step, which are subtracted with its rows;
// requested ones are tokens of a later step.
TEST(StepBudgetTest, DraftsTakeWhatTheirStepHasNotCounted) {
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    const int per_token = 1 + random() % 3;  // rows of logits
    StepBudget budget = {
        .num_tokens = 50,
        .num_logits = 60,
        .num_prefill_rows = 7,
        .drafts = {.num_tokens = 30, .num_logits = 90, .num_pages = 20}};
    const int num_verified = random() % 6;
    budget.TakeDrafts(num_verified, num_verified * per_token, 3);
    EXPECT_EQ(budget.num_tokens, 50);
    EXPECT_EQ(budget.num_logits, 60 - num_verified * (per_token - 1));
    std::vector<DraftSequence> requested(random() % 4);
    int num_drafts = num_verified;
    for (DraftSequence& sequence : requested) {
      sequence.num_tokens = random() % 5;
      num_drafts += sequence.num_tokens;
    }
    const int num_logits = budget.num_logits;
    budget.TakeRequested(requested, per_token, 2);
    EXPECT_EQ(budget.num_tokens, 50);
    EXPECT_EQ(budget.num_logits, num_logits);
    EXPECT_EQ(budget.num_prefill_rows, 7);
    EXPECT_EQ(budget.drafts.num_tokens, 30 - num_drafts);
    EXPECT_EQ(budget.drafts.num_logits, 90 - num_drafts * per_token);
    EXPECT_EQ(budget.drafts.num_pages, 15);
  }
}

TEST(PlanWriterTest, GroupsWithRoomStayWithinTheBudgetAndOthersWouldNot) {
  int num_refused = 0;
  int num_exact = 0;
  int num_drafted = 0;
  for (uint32_t seed = 0; seed < Cases(3000u, 200u); ++seed) {
    SCOPED_TRACE(seed);
    AnyGroups any(seed, /*may_score=*/true, /*prefix_cache=*/false);
    if (seed % 3 == 0) any.PreemptOne();
    PlanWriter& writer = any.parts.writer;
    StepPlan plan = any.parts.BeginPlan();
    StepBudget left = {any.parts.admission.max_step_tokens(),
                       any.parts.model.limits.max_beams,
                       any.parts.model.limits.max_prefill_rows,
                       {.num_tokens = static_cast<int>(any.random() % 9),
                        .num_pages = static_cast<int64_t>(any.random() % 9)}};
    writer.SetDraftRoom(left.drafts);
    std::vector<RunningGroup*> order;
    for (RunningGroup& running : any.parts.groups) order.push_back(&running);
    std::shuffle(order.begin(), order.end(), any.random);
    bool is_full = false;
    for (size_t i = 0; i < order.size() && !is_full; ++i) {
      const SequenceGroup& group = *order[i]->group;
      const bool was_prefilling = group.prefilling();
      const bool has_room = writer.HasRoomFor(group);
      is_full = !has_room;
      if (!has_room && was_prefilling) {
        // Nothing less than a token and a row of logits is room for a prompt.
        if (left.is_used_up()) break;
        if (left.num_prefill_rows < 1) {
          EXPECT_FALSE(group.EndsPrompt(left.num_tokens, left.num_logits));
          break;
        }
      }
      const size_t num_tokens = plan.tokens.size();
      const size_t num_rows = plan.rows.size();
      const size_t num_selections = plan.selections.size();
      const int num_logits = plan.num_logits;
      const int num_scored = NumScored(plan);
      const int num_drafts = NumDrafted(plan);
      const int64_t num_plain = group.NumPagesForStep(1);
      const int num_available = any.parts.pool.num_available();
      const bool may_draft = !was_prefilling && group.may_draft();
      writer.PlanGroup(*order[i], &plan);

      left.num_tokens -= plan.tokens.size() - num_tokens;
      left.num_logits -=
          std::max(plan.num_logits - num_logits, NumScored(plan) - num_scored);
      if (was_prefilling && plan.selections.size() == num_selections) {
        left.num_prefill_rows -= plan.rows.size() - num_rows;
      }
      left.drafts.num_tokens -= NumDrafted(plan) - num_drafts;
      if (may_draft) {
        left.drafts.num_pages -=
            num_available - any.parts.pool.num_available() - num_plain;
      }
      const StepBudget& budget = writer.budget();
      EXPECT_EQ(budget.num_tokens, left.num_tokens);
      EXPECT_EQ(budget.num_logits, left.num_logits);
      EXPECT_EQ(budget.num_prefill_rows, left.num_prefill_rows);
      EXPECT_EQ(budget.drafts.num_tokens, left.drafts.num_tokens);
      if (!group.only_scores()) {
        EXPECT_EQ(budget.drafts.num_pages, left.drafts.num_pages);
      }
      left.drafts = budget.drafts;
      EXPECT_GE(left.drafts.num_tokens, 0);
      EXPECT_GE(left.drafts.num_pages, 0);
      const int least =
          std::min({left.num_tokens, left.num_logits, left.num_prefill_rows});
      // Drafts have room of their own, and scored tokens an upper bound.
      if (!may_draft && (has_room || !group.only_scores())) {
        EXPECT_EQ(least >= 0, has_room);
      }
      num_refused += !has_room;
      num_exact += left.num_tokens == 0;
      num_drafted += NumDrafted(plan) - num_drafts;
    }
    writer.Abandon();
    for (RunningGroup& running : any.parts.groups) {
      any.parts.groups.Finish(running, absl::CancelledError());
    }
  }
  EXPECT_THAT((std::vector{num_refused, num_exact, num_drafted}),
              ::testing::Each(Gt(0)));
}

// Counts of a plan, each token as the one kind that it is.
struct Fed {
  int64_t prompt = 0, again = 0, decoded = 0, drafted = 0;
  friend bool operator==(const Fed&, const Fed&) = default;
  friend void PrintTo(const Fed& fed, std::ostream* out) {
    *out << fed.prompt << " of prompts, " << fed.again << " again, "
         << fed.decoded << " decoded, " << fed.drafted << " drafted";
  }
};

Fed FedBy(const SchedulerStats& stats) {
  return {stats.num_prompt_tokens, stats.num_tokens_fed_again,
          stats.num_decode_rows, stats.num_draft_tokens_fed};
}

// Also after plans that were abandoned. Some groups only copy pages, because
// the step has no room for their prompts.
TEST(PlanWriterTest, ASentPlanNamesItsGroupsOnceAndCountsItsTokens) {
  int num_movers = 0;
  for (uint32_t seed = 0; seed < Cases(400u, 40u); ++seed) {
    SCOPED_TRACE(seed);
    AnyGroups any(seed, /*may_score=*/false, /*prefix_cache=*/seed % 2 == 0);
    SchedulerParts& parts = any.parts;
    std::map<RequestId, int> most_fed;  // prompt tokens
    for (const RunningGroup& running : parts.groups) {
      most_fed[running.id] = running.group->pages().sequence(0).num_tokens();
    }
    for (int step = 0; step < 12; ++step) {
      if (any.random() % 2 == 0) any.AddOne();
      if (any.random() % 4 == 0) any.PreemptOne();
      parts.counts.now = 10 * step;
      StepPlan plan = parts.BeginPlan();
      parts.writer.SetDraftRoom({.num_tokens = 4, .num_pages = 20});
      Fed fed;
      std::vector<RequestId> planned;
      bool only_decodes = true;
      int64_t num_draft_pages = 0;
      int64_t num_unshared = 0;
      for (RunningGroup& running : parts.groups) {
        const SequenceGroup& group = *running.group;
        if (group.prefilling()) parts.groups.MatchPrefix(running, 0, &plan);
        const bool prefills = group.prefilling();
        const bool may_draft = !prefills && group.may_draft();
        const int64_t num_plain = prefills ? 0 : group.NumPagesForStep(1);
        const size_t first_row = plan.rows.size();
        const int num_available = parts.pool.num_available();
        int& num_fed = most_fed[running.id];
        if (!prefills) fed.decoded += group.num_live_beams();
        if (parts.PlanIfRoom(running, &plan)) {
          planned.push_back(running.id);
          only_decodes = only_decodes && !prefills && !may_draft;
        }
        for (size_t i = first_row; i < plan.rows.size(); ++i) {
          const PlanRow& row = plan.rows[i];
          const int num_new =
              group.has_output() || !prefills
                  ? 0
                  : std::clamp(row.first_position + row.num_tokens - num_fed, 0,
                               row.num_tokens);
          fed.prompt += num_new;
          (prefills ? fed.again : fed.drafted) += row.num_tokens - num_new;
        }
        if (!prefills) fed.drafted -= group.num_live_beams();
        if (may_draft) {
          num_draft_pages +=
              num_available - parts.pool.num_available() - num_plain;
        }
        if (prefills && !group.has_output()) {
          num_fed = std::max(num_fed, group.pages().sequence(0).num_tokens());
        }
        num_unshared += group.pages().NumUnsharedPages();
      }
      if (any.random() % 8 == 0) {
        parts.writer.Abandon();
        for (RunningGroup& running : parts.groups) {
          parts.groups.Finish(running, absl::InternalError("abandoned"));
        }
        parts.groups.EraseDone();
        continue;
      }
      for (const RunningGroup& running : parts.groups) {
        if (running.group->pages().has_moves() &&
            std::ranges::count(planned, running.id) == 0) {
          planned.push_back(running.id);
          only_decodes = false;
          ++num_movers;
        }
      }
      if (planned.empty()) continue;
      const Fed before = FedBy(parts.counts.stats);
      parts.Send(plan);
      const Fed after = FedBy(parts.counts.stats);
      EXPECT_EQ(
          (Fed{after.prompt - before.prompt, after.again - before.again,
               after.decoded - before.decoded, after.drafted - before.drafted}),
          fed);
      const PlanInFlight sent = parts.in_flight.TakeOldest();
      EXPECT_EQ(sent.requests, planned);
      EXPECT_EQ(sent.num_prompt_tokens, fed.prompt + fed.again);
      EXPECT_EQ(sent.num_decode_sequences, fed.decoded);
      EXPECT_EQ(sent.num_draft_pages, num_draft_pages);
      EXPECT_EQ(sent.only_decodes, only_decodes);
      const bool all_decode =
          only_decodes && planned.size() == parts.groups.size();
      EXPECT_EQ(sent.num_unshared_pages, all_decode ? num_unshared : -1);
      EXPECT_EQ(sent.planned_alone_ns, 10 * step);
      absl::StatusOr<StepResult> result = RunPlan(any.toy, plan);
      ASSERT_OK(result);
      parts.applier.Apply(sent, &*result);
      parts.groups.EraseDone();
    }
  }
  EXPECT_GT(num_movers, 0);
}

// A source of 20 tokens, and a decoder that begins with 3.
TEST(PlanWriterTest, ASourceIsFedAtOnceWithATokenOfTheDecoder) {
  for (const int max_tokens : {1, 19, 20, 21, 22, 23, 24}) {
    ModelDescription model = ToyModel(kToy).description();
    model.encoder = {.max_source_tokens = 50, .decoder_prompt = {1, 2, 3}};
    SchedulerParts parts(
        model, {.max_step_tokens = max_tokens, .prefix_cache = false});
    Request request;
    request.prompt_tokens.resize(20, 4);
    ASSERT_OK(ValidateRequest(model, &request));
    for (const int64_t id : {1, 2}) parts.Add(id, 0, request);
    StepPlan plan = parts.BeginPlan();
    ASSERT_TRUE(parts.PlanIfRoom(parts.groups[0], &plan));
    const int num_fed = std::clamp(max_tokens - 20, 1, 3);
    EXPECT_THAT(plan.tokens, SizeIs(num_fed));
    const int num_left = max_tokens - 20 - num_fed;
    EXPECT_EQ(parts.writer.budget().num_tokens, num_left);
    EXPECT_EQ(parts.writer.HasRoomFor(*parts.groups[1].group), num_left > 0);
    parts.Send(plan);
    EXPECT_EQ(parts.counts.stats.num_prompt_tokens, 20);
    EXPECT_EQ(parts.in_flight.oldest().num_prompt_tokens, 20 + num_fed);
  }
}

}  // namespace
}  // namespace espalier
