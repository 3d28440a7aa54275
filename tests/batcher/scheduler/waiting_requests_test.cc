#include "batcher/scheduler/waiting_requests.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace espalier {
namespace {

Request OneToken() {
  Request request;
  request.prompt_tokens = {0};
  request.params.max_new_tokens = 5;
  request.params.eos_token_id = std::vector<int64_t>();
  return request;
}

WaitingRequest WaitingWithId(int64_t id, int64_t priority = 0,
                             int64_t step = 0) {
  return {.turn = Turn::Of(priority, step, RequestId{id}),
          .prepared = PreparedRequest(OneToken()),
          .needs = {.num_pages = id},
          .done = [](const absl::StatusOr<Result>&) {},
          .watcher = nullptr};
}

TEST(WaitingRequestsTest, RequestsLeaveInTheOrderOfArrivalOrById) {
  WaitingRequests waiting;
  EXPECT_TRUE(waiting.empty());
  for (int64_t id = 1; id <= 5; ++id) waiting.Push(WaitingWithId(id));
  EXPECT_EQ(waiting.size(), 5);
  EXPECT_EQ(waiting.front().turn.id, RequestId{1});
  EXPECT_EQ(waiting.TakeFront().needs.num_pages, 1);
  EXPECT_EQ(waiting.Take(RequestId{3})->needs.num_pages, 3);
  EXPECT_FALSE(waiting.Take(RequestId{3}).has_value());
  EXPECT_FALSE(waiting.Take(RequestId{1}).has_value());
  EXPECT_EQ(waiting.TakeFront().turn.id, RequestId{2});
  const std::vector<WaitingRequest> rest = waiting.TakeAll();
  EXPECT_EQ(rest.size(), 2);
  EXPECT_EQ(rest.front().turn.id, RequestId{4});
  EXPECT_TRUE(waiting.empty());
  EXPECT_FALSE(waiting.Take(RequestId{5}).has_value());
}

TEST(WaitingRequestsTest, LowerPrioritiesComeFirst) {
  WaitingRequests waiting;
  waiting.Push(WaitingWithId(1, 1));
  waiting.Push(WaitingWithId(2, 0));
  waiting.Push(WaitingWithId(3, -1));
  waiting.Push(WaitingWithId(4, 0));
  for (const int64_t id : {3, 2, 4, 1}) {
    EXPECT_EQ(waiting.TakeFront().turn.id, RequestId{id});
  }
}

TEST(TurnTest, WhoHasWaitedLongEnoughComesBeforeAHigherPriority) {
  const Turn low = Turn::Of(2, 100, RequestId{1});
  EXPECT_LT(Turn::Of(0, 100, RequestId{2}), low);
  EXPECT_LT(low, Turn::Of(0, 100 + 2 * Turn::kStepsPerPriority, RequestId{3}));
}

TEST(TurnTest, PrioritiesBeyondAllMeasureStayInOrder) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_LT(Turn::Of(kMin, 0, RequestId{2}), Turn::Of(0, 0, RequestId{1}));
  EXPECT_LT(Turn::Of(0, kMax, RequestId{1}),
            Turn::Of(kMax, kMax, RequestId{2}));
}

}  // namespace
}  // namespace espalier
