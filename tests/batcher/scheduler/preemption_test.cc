#include "batcher/scheduler/preemption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "tests/batcher/scheduler/scheduler_parts.h"
#include "tests/few_cases.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::IsEmpty;

// Groups at random places of their requests, equal for equal seeds, in a pool
// of which other holders leave a random number of pages.
struct CrampedGroups {
  static ToyModelOptions Options(uint32_t seed, int num_host_slots) {
    ToyModelOptions options;
    options.page_size = std::vector{1, 3, 4}[seed % 3];
    options.num_pages = 600;
    options.has_shareable_pages = true;
    options.num_host_slots = num_host_slots;
    return options;
  }

  explicit CrampedGroups(uint32_t seed, int num_host_slots = 0)
      : random(seed),
        toy_options(Options(seed, num_host_slots)),
        toy(toy_options),
        parts(toy.description(),
              {.max_step_tokens = std::vector{1, 5, 60}[random() % 3],
               .prefix_cache = false,
               .preempted_pages = PreemptedPages::kHost}) {
    const int num_groups = 1 + random() % 6;
    for (int i = 0; i < num_groups; ++i) {
      requests.push_back(RandomRequest(random, toy.description()));
      // Turns are not in the order of ids, and some arrive in one step.
      parts.Add(i, random() % 3, requests.back());
      for (int j = random() % 4; j > 0; --j) parts.Step(toy);
    }
  }
  void LeaveAvailable(int num_pages) {
    while (parts.pool.num_available() > num_pages) {
      others.push_back(*parts.pool.Allocate());
    }
  }
  std::set<RequestId> Running() const {
    std::set<RequestId> ids;
    for (const RunningGroup& running : parts.groups) {
      if (!running.is_preempted()) ids.insert(running.id);
    }
    return ids;
  }

  std::mt19937 random;
  const ToyModelOptions toy_options;
  ToyModel toy;
  SchedulerParts parts;
  std::vector<Request> requests;
  std::vector<PageRef> others;
};

// Pages that only this group holds, as there is no prefix cache.
int64_t NumHeld(const SequenceGroup& group) {
  std::set<PageId> pages;
  for (const HeldPages& held : group.pages().PagesBySlot()) {
    pages.insert(held.pages.begin(), held.pages.end());
  }
  return std::ssize(pages);
}

// Returns the pages that planning the group takes.
int64_t NumTaken(CrampedGroups& twin, size_t idx, bool decodes) {
  SequenceGroup& group = *twin.parts.groups[idx].group;
  if (group.is_preempted() || (!decodes && !group.prefilling())) return 0;
  const int num_before = twin.parts.pool.num_available();
  StepPlan plan;
  EXPECT_OK(group.PlanStep(twin.parts.admission.max_step_tokens(), &plan));
  return num_before - twin.parts.pool.num_available();
}

TEST(PreemptionTest, AsManyFirstGroupsAsPagesSufficeForKeepRunning) {
  int num_cases[3] = {};  // all, some and none run
  for (uint32_t seed = 0; seed < Cases(600u, 60u); ++seed) {
    CrampedGroups cramped(seed);
    CrampedGroups twin(seed);
    SchedulerParts& parts = cramped.parts;
    const bool decodes = cramped.random() % 4 > 0;
    std::vector<int64_t> needs;
    std::vector<int64_t> held;
    std::vector<RequestId> turns;
    int64_t num_needed = 0;
    for (size_t i = 0; i < parts.groups.size(); ++i) {
      needs.push_back(NumTaken(twin, i, decodes));
      held.push_back(NumHeld(*parts.groups[i].group));
      turns.push_back(parts.groups[i].id);
      num_needed += needs.back();
      EXPECT_EQ(parts.preemption.NumPagesNow(parts.groups[i], decodes),
                needs[i]);
    }
    // Also none, exactly enough, and one less.
    const int64_t num_available = std::vector<int64_t>{
        0, num_needed, std::max<int64_t>(num_needed - 1, 0),
        static_cast<int64_t>(cramped.random() %
                             (num_needed + 1))}[seed / 3 % 4];
    cramped.LeaveAvailable(static_cast<int>(num_available));
    // The most groups whose needs are met by what the others release.
    size_t num_run = turns.size();
    const auto has_pages_for = [&](size_t count) {
      int64_t num_missing = -num_available;
      for (size_t i = 0; i < turns.size(); ++i) {
        num_missing += i < count ? needs[i] : -held[i];
      }
      return num_missing <= 0;
    };
    while (!has_pages_for(num_run)) --num_run;
    ++num_cases[num_run == 0 ? 2 : num_run < turns.size()];

    StepPlan plan = parts.BeginPlan();
    const PlanRoom room = parts.preemption.MakeRoom(decodes, &plan);
    EXPECT_EQ(cramped.Running(),
              std::set(turns.begin(), turns.begin() + num_run))
        << "seed " << seed;
    EXPECT_EQ(room.was_made, num_run < turns.size());
    EXPECT_EQ(parts.counts.stats.num_preemptions,
              std::count_if(held.begin() + num_run, held.end(),
                            [](int64_t count) { return count > 0; }));
    int64_t num_prefill_pages = 0;
    int64_t num_pages = 0;
    for (size_t i = 0; i < num_run; ++i) {
      SequenceGroup& group = *parts.groups[i].group;
      num_pages += needs[i];
      if (group.prefilling()) num_prefill_pages += needs[i];
      if (!decodes && !group.prefilling()) continue;
      EXPECT_OK(group.PlanStep(parts.admission.max_step_tokens(), &plan));
    }
    EXPECT_EQ(room.num_pages, num_pages);
    EXPECT_EQ(room.num_prefill_pages, num_prefill_pages);
  }
  EXPECT_THAT(num_cases, ::testing::Each(::testing::Gt(0)));
}

// The outcome of each save reaches its group once, whether the plan is sent,
// fails, or is never sent, and requests may end meanwhile. Then the results are
// those of requests that ran alone.
TEST(PreemptionTest, SavedGroupsLearnTheOutcomeOnceAndResume) {
  int64_t num_loaded = 0;
  for (uint32_t seed = 0; seed < Cases(400u, 40u); ++seed) {
    const int num_slots = std::vector{0, 1, 4, 500}[seed / 3 % 4];
    CrampedGroups cramped(seed, num_slots);
    SchedulerParts& parts = cramped.parts;
    StepPlan plan = parts.BeginPlan();
    cramped.LeaveAvailable(0);
    parts.preemption.MakeRoom(true, &plan);
    cramped.others.clear();
    std::set<RequestId> saving;
    for (const RunningGroup& running : parts.groups) {
      if (running.group->is_saving()) saving.insert(running.id);
    }
    const std::span<const RequestId> saved = parts.preemption.saved();
    EXPECT_EQ(std::set(saved.begin(), saved.end()), saving);
    EXPECT_EQ(saved.size(), saving.size());
    EXPECT_EQ(plan.page_saves.empty(), saving.empty());
    EXPECT_LE(plan.page_saves.size(), num_slots);

    const bool is_sent = seed % 5 > 0;
    const bool is_ok = seed % 5 > 1;
    if (is_sent) {
      parts.Send(plan);
    } else {
      parts.preemption.DropSaves(&plan);
      EXPECT_THAT(plan.page_saves, IsEmpty());
      *parts.groups.next_plan() = std::move(plan);
    }
    EXPECT_THAT(parts.preemption.saved(), IsEmpty());
    std::optional<int64_t> cancelled;
    if (cramped.random() % 2 == 0 && !parts.groups.empty()) {
      RunningGroup& running =
          parts.groups[cramped.random() % parts.groups.size()];
      cancelled = running.id.value;
      parts.groups.Finish(running, absl::CancelledError());
    }
    if (is_sent) {
      EXPECT_OK(RunPlan(cramped.toy, plan));
      const PlanInFlight remembered = parts.in_flight.TakeOldest();
      EXPECT_EQ(std::set(remembered.saved.begin(), remembered.saved.end()),
                saving);
      parts.preemption.AnswerSaves(remembered, is_ok);
    }
    parts.groups.EraseDone();
    if (!is_ok) {
      EXPECT_EQ(parts.host_pool.num_held(), 0) << "seed " << seed;
    }
    for (const RunningGroup& running : parts.groups) {
      EXPECT_FALSE(running.group->is_saving()) << "seed " << seed;
    }
    while (parts.Step(cramped.toy)) {
    }
    num_loaded += parts.counts.stats.num_tokens_loaded_again;
    EXPECT_EQ(parts.host_pool.num_held(), 0);
    for (int64_t id = 0; id < std::ssize(cramped.requests); ++id) {
      if (id == cancelled) continue;
      SCOPED_TRACE(seed);
      parts.ExpectEndAsAlone(id, cramped.toy_options, cramped.requests[id]);
    }
  }
  EXPECT_GT(num_loaded, 0);
}

}  // namespace
}  // namespace espalier
