#include "batcher/scheduler/fair_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;

// Request `id` of priority 0, unless said otherwise, that came at step `id`.
Turn TurnOf(int64_t id, int64_t priority = 0) {
  return Turn::Of(priority, id, RequestId{id});
}

// Takes all that are left; the ids of the requests.
std::vector<int64_t> TakeAll(FairTurns& turns) {
  std::vector<int64_t> ids;
  while (!turns.empty()) {
    ids.push_back(turns.NextRequest().id.value);
    turns.Take();
  }
  return ids;
}

TEST(FairTurnsTest, ALoneTenantHasEachOfItsTurns) {
  std::mt19937 random(5);
  FairTurns turns;
  std::vector<Turn> expected;
  for (int64_t id = 0; id < 500; ++id) {
    const int64_t priority = random() % 4;
    const Turn turn = Turn::Of(priority, id * 20, RequestId{id});
    turns.Push(turn, priority, "", 1 + random() % 100);
    expected.push_back(turn);
    if (random() % 3 > 0) continue;
    std::ranges::sort(expected);
    EXPECT_EQ(turns.NextRequest(), expected.front());
    EXPECT_EQ(turns.next_turn(), expected.front());
    turns.Take();
    expected.erase(expected.begin());
  }
  std::ranges::sort(expected);
  for (const Turn& turn : expected) {
    EXPECT_EQ(turns.NextRequest(), turn);
    turns.Take();
  }
  EXPECT_EQ(turns.num_tenants(), 0);
}

TEST(FairTurnsTest, TenantsOfEqualRequestsAlternateWhoeverCameFirst) {
  FairTurns turns;
  for (int64_t id = 0; id < 6; ++id) turns.Push(TurnOf(id), 0, "a", 10);
  for (int64_t id = 6; id < 9; ++id) turns.Push(TurnOf(id), 0, "b", 10);
  EXPECT_THAT(TakeAll(turns), ElementsAre(0, 6, 1, 7, 2, 8, 3, 4, 5));
}

// The tenant of smaller requests gets more of them.
TEST(FairTurnsTest, TenantsShareTokensNotRequests) {
  FairTurns turns;
  for (int64_t id = 0; id < 3; ++id) turns.Push(TurnOf(id), 0, "a", 40);
  for (int64_t id = 3; id < 11; ++id) turns.Push(TurnOf(id), 0, "b", 10);
  EXPECT_THAT(TakeAll(turns), ElementsAre(0, 3, 4, 5, 6, 1, 7, 8, 9, 10, 2));
}

TEST(FairTurnsTest, AFloodDelaysASingleRequestByOneRequest) {
  FairTurns turns;
  for (int64_t id = 0; id < 1000; ++id) turns.Push(TurnOf(id), 0, "a", 30);
  for (int i = 0; i < 400; ++i) turns.Take();
  turns.Push(TurnOf(2000), 0, "b", 20);
  EXPECT_EQ(turns.NextRequest().id, RequestId{400});
  turns.Take();
  EXPECT_EQ(turns.NextRequest().id, RequestId{2000});
  // It takes the turn that came up, which is older than its own.
  EXPECT_EQ(turns.next_turn(), TurnOf(401));
}

// Tenants share within a priority alone: which is served when, turns say.
TEST(FairTurnsTest, PrioritiesComeFirst) {
  FairTurns turns;
  for (int64_t id = 0; id < 3; ++id) turns.Push(TurnOf(id), 0, "a", 10);
  turns.Push(TurnOf(3, 1), 1, "b", 10);
  turns.Push(TurnOf(4, -1), -1, "a", 10);
  turns.Push(TurnOf(1500), 0, "c", 10);
  // c came when b had aged: but it takes the second turn of its priority.
  EXPECT_THAT(TakeAll(turns), ElementsAre(4, 0, 1500, 1, 3, 2));
}

TEST(FairTurnsTest, AnAbsentTenantSavesNothingUp) {
  FairTurns turns;
  turns.Push(TurnOf(0), 0, "a", 10);
  turns.Push(TurnOf(1), 0, "b", 10);
  for (int64_t id = 2; id < 100; ++id) turns.Push(TurnOf(id), 0, "a", 10);
  for (int i = 0; i < 51; ++i) turns.Take();
  for (int64_t id = 100; id < 103; ++id) turns.Push(TurnOf(id), 0, "b", 10);
  std::vector<int64_t> ids = TakeAll(turns);
  ids.resize(6);
  EXPECT_THAT(ids, ElementsAre(51, 100, 52, 101, 53, 102));
}

// As many new tenants as one likes cannot keep one that waits from its turn.
TEST(FairTurnsTest, WhoWaitsIsNotOvertakenByNewTenantsForEver) {
  FairTurns turns;
  for (int64_t id = 0; id < 2; ++id) turns.Push(TurnOf(id), 0, "a", 100);
  turns.Take();
  int num_before = 0;
  for (int64_t id = 2; turns.NextRequest().id != RequestId{1}; ++id) {
    turns.Push(TurnOf(id), 0, "new " + std::to_string(id), 10);
    turns.Take();
    ASSERT_LT(++num_before, 30);
  }
}

TEST(FairTurnsTest, ARemovedRequestCostsNothingAndTakesATurnWithIt) {
  FairTurns turns;
  for (int64_t id = 0; id < 4; ++id) turns.Push(TurnOf(id), 0, "a", 10);
  for (int64_t id = 4; id < 7; ++id) turns.Push(TurnOf(id), 0, "b", 10);
  turns.Take();             // 0
  turns.Take();             // 4, by the turn of 1
  turns.Remove(TurnOf(1));  // with the turn of 2
  EXPECT_EQ(turns.next_turn(), TurnOf(3));
  turns.Remove(TurnOf(6));
  EXPECT_THAT(TakeAll(turns), ElementsAre(2, 5, 3));
  EXPECT_EQ(turns.num_tenants(), 0);
}

TEST(FairTurnsTest, TenantsAreForgottenWhileOthersWait) {
  FairTurns turns;
  for (int64_t id = 0; id < 6000; ++id) turns.Push(TurnOf(id), 0, "a", 10);
  for (int64_t id = 6000; id < 8000; ++id) {
    turns.Push(TurnOf(id), 0, std::to_string(id), 10);
    for (int i = 0; i < 2; ++i) turns.Take();
    ASSERT_LE(turns.num_tenants(), 8);
  }
}

// Random arrivals and departures at one priority. Of each pair of tenants, what
// one got more than the other, at most and at least since both wait.
class ShareMeter {
 public:
  static constexpr int kNumTenants = 4;

  void OnPush(int tenant) { ++num_waiting_[tenant]; }
  void OnRemove(int tenant) { --num_waiting_[tenant]; }
  void OnTake(int tenant, int64_t cost) {
    for (int other = 0; other < kNumTenants; ++other) {
      if (other == tenant) continue;
      Range& range = ranges_[std::min(tenant, other)][std::max(tenant, other)];
      if (num_waiting_[tenant] == 0 || num_waiting_[other] == 0) {
        range = Range();
        continue;
      }
      range.now += tenant < other ? cost : -cost;
      range.low = std::min(range.low, range.now);
      range.high = std::max(range.high, range.now);
      worst_ = std::max(worst_, range.high - range.low);
    }
    --num_waiting_[tenant];
  }
  bool waits(int tenant) const { return num_waiting_[tenant] > 0; }
  int64_t worst() const { return worst_; }

 private:
  struct Range {
    int64_t now = 0;
    int64_t low = 0;
    int64_t high = 0;
  };
  std::array<int, kNumTenants> num_waiting_ = {};
  std::array<std::array<Range, kNumTenants>, kNumTenants> ranges_ = {};
  int64_t worst_ = 0;
};

TEST(FairTurnsTest, WhoeverWaitsGetsItsShareWithinABound) {
  constexpr int64_t kMaxCost = 60;
  int64_t worst = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    FairTurns turns;
    ShareMeter meter;
    struct Waiting {
      int tenant;
      int64_t cost;
    };
    std::map<int64_t, Waiting> waiting;
    int64_t next_id = 0;
    for (int i = 0; i < 4000; ++i) {
      const int tenant = random() % ShareMeter::kNumTenants;
      // Some floods, some single requests; each tenant's of another size.
      int num_new = random() % (40 * (tenant + 1)) == 0 ? 60 : 0;
      if (random() % 8 == 0) num_new = 1;
      for (; num_new > 0; --num_new) {
        const int64_t cost = 1 + random() % (kMaxCost / (1 + tenant));
        turns.Push(TurnOf(next_id), 0, std::to_string(tenant), cost);
        waiting[next_id++] = {tenant, cost};
        meter.OnPush(tenant);
      }
      if (!waiting.empty() && random() % 20 == 0) {
        const auto gone = std::next(waiting.begin(), random() % waiting.size());
        turns.Remove(TurnOf(gone->first));
        meter.OnRemove(gone->second.tenant);
        waiting.erase(gone);
      }
      ASSERT_EQ(turns.empty(), waiting.empty());
      if (turns.empty()) continue;
      const int64_t id = turns.NextRequest().id.value;
      turns.Take();
      meter.OnTake(waiting[id].tenant, waiting[id].cost);
      waiting.erase(id);
    }
    worst = std::max(worst, meter.worst());
  }
  EXPECT_LE(worst, 3 * kMaxCost);
  EXPECT_GT(worst, kMaxCost / 2);  // it was put to the test
}

// One request at a time, of 4 + 3 tokens each: the order of their answers.
TEST(FairTurnsTest, ASchedulerServesTenantsInTurn) {
  ToyModel model(SmallModel());
  Scheduler scheduler(model.description(),
                      {.max_running = 1, .validate_steps = true});
  std::vector<int64_t> order;
  int64_t next_id = 0;
  const auto submit = [&](const std::string& tenant, int64_t priority,
                          int count) {
    for (; count > 0; --count) {
      const int64_t id = next_id++;
      PreparedRequest prepared(LongRequest(3));
      prepared.request.params.tenant = tenant;
      prepared.request.params.priority = priority;
      scheduler.Submit(RequestId{id}, std::move(prepared),
                       [&, id](const absl::StatusOr<Result>& result) {
                         EXPECT_OK(result);
                         order.push_back(id);
                       });
    }
  };
  submit("a", 0, 6);
  RunToEnd(scheduler, model, [&](int step) {
    if (step == 4) submit("b", 0, 2);
    if (step == 5) submit("c", 0, 1);
    if (step == 6) submit("b", -1, 1);
  });
  // 1 runs when the others come.
  EXPECT_THAT(order, ElementsAre(0, 1, 9, 2, 6, 8, 3, 7, 4, 5));
  ExpectNothingHeld(scheduler);
}

}  // namespace
}  // namespace espalier
