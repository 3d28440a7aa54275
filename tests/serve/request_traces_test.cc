#include "serve/request_traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/status_matchers.h"
#include "tests/trace/fake_trace.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::FakeSearch;
using ::espalier::testing::MakeUpTrace;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kNotFound = absl::StatusCode::kNotFound;

// A search under an id of its caller.
std::vector<TraceEvent> SearchOf(int64_t number, const std::string& id,
                                 FakeSearch search = {}) {
  search.request = number;
  std::vector<TraceEvent> events = MakeUpTrace(search);
  std::get<TraceRequest>(events.front()).caller_id = id;
  return events;
}

void Record(const std::vector<TraceEvent>& events, RequestTraces* traces) {
  for (const TraceEvent& event : events) traces->On(event);
}

std::vector<TraceEvent> EventsOf(const RequestTrace& trace) {
  return {trace.events.begin(), trace.events.end()};
}

TEST(RequestTracesTest, KeepsTheLastThatEnded) {
  RequestTraces traces({.max_requests = 3});
  for (int i = 0; i < 10; ++i) {
    Record(SearchOf(i, "r" + std::to_string(i)), &traces);
  }
  EXPECT_EQ(traces.num_ended(), 3);
  for (int i = 0; i < 10; ++i) {
    const std::string id = "r" + std::to_string(i);
    const auto found = traces.Find(id);
    if (i < 7) {
      EXPECT_THAT(found.status(),
                  StatusIs(kNotFound, AllOf(HasSubstr('"' + id + '"'),
                                            HasSubstr("last 3 requests"))));
      continue;
    }
    ASSERT_OK(found);
    ASSERT_EQ(found->size(), 1);
    EXPECT_EQ(EventsOf(*found->front()), SearchOf(i, id));
  }
}

TEST(RequestTracesTest, OneThatRunsIsNotThereYet) {
  RequestTraces traces({.max_requests = 3});
  Record(SearchOf(1, "a", {.ends = false}), &traces);
  EXPECT_THAT(traces.Find("a").status(),
              StatusIs(kNotFound, HasSubstr("runs")));
  traces.On(TraceEnd{.request = RequestId{1}});
  EXPECT_OK(traces.Find("a"));
}

TEST(RequestTracesTest, RequestsOfOneIdAreFoundTogether) {
  RequestTraces traces({.max_requests = 9});
  // Their events are mixed.
  const std::vector<TraceEvent> first = SearchOf(1, "a");
  const std::vector<TraceEvent> second = SearchOf(2, "a");
  for (size_t i = 0; i < first.size(); ++i) {
    traces.On(first[i]);
    traces.On(second[i]);
  }
  const auto found = traces.Find("a");
  ASSERT_OK(found);
  ASSERT_EQ(found->size(), 2);
  EXPECT_EQ(EventsOf(*found->at(0)), first);
  EXPECT_EQ(EventsOf(*found->at(1)), second);
}

TEST(RequestTracesTest, WithoutAnIdItIsKnownByItsNumber) {
  RequestTraces traces({.max_requests = 1});
  Record(MakeUpTrace({.request = 42}), &traces);
  EXPECT_OK(traces.Find("42"));
}

TEST(RequestTracesTest, OneThatIsTooLargeIsDroppedAlone) {
  RequestTraces traces({.max_requests = 9, .max_request_bytes = 20'000});
  Record(SearchOf(1, "small", {.num_steps = 2}), &traces);
  Record(SearchOf(2, "large", {.num_beams = 50, .num_steps = 20}), &traces);
  EXPECT_OK(traces.Find("small"));
  EXPECT_THAT(traces.Find("large").status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("\"large\""), HasSubstr("20000"))));
  EXPECT_LT(traces.num_bytes(), 20'000);
}

TEST(RequestTracesTest, WhereNoneAreKeptNothingIs) {
  RequestTraces traces({});
  Record(SearchOf(1, "a"), &traces);
  EXPECT_EQ(traces.num_bytes(), 0);
  EXPECT_THAT(traces.Find("a").status(),
              StatusIs(kNotFound, HasSubstr("last 0 requests")));
}

TEST(RequestTracesTest, AnyIdIsAnswered) {
  const RequestTraces traces({.max_requests = 1});
  for (const auto& [id, shown] :
       {std::pair<std::string, std::string>{"", "request \"\""},
        {"\xff\"\n", R"(request "\xff\"\n")"},
        {"/../x", "request \"/../x\""}}) {
    EXPECT_THAT(traces.Find(id).status(),
                StatusIs(kNotFound, HasSubstr(shown)));
  }
}

TEST(RequestTracesTest, WrongLimitsAreNamed) {
  EXPECT_THAT(CheckTraceLimits({.max_requests = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_requests must be in [0, 4096], got -1")));
  EXPECT_FALSE(CheckTraceLimits({.max_requests = 4097}).ok());
  EXPECT_FALSE(CheckTraceLimits({.max_bytes = -1}).ok());
  EXPECT_FALSE(CheckTraceLimits({.max_request_bytes = -1}).ok());
  EXPECT_OK(CheckTraceLimits({.max_requests = 4096}));
}

// Events of requests that run together, mixed, each request's in order.
std::vector<TraceEvent> Mixed(const std::vector<FakeSearch>& searches) {
  std::vector<std::vector<TraceEvent>> left;
  for (const FakeSearch& search : searches) left.push_back(MakeUpTrace(search));
  std::vector<TraceEvent> events;
  std::vector<size_t> next(left.size(), 0);
  while (true) {
    std::vector<size_t> live;
    for (size_t i = 0; i < left.size(); ++i) {
      if (next[i] < left[i].size()) live.push_back(i);
    }
    if (live.empty()) return events;
    const size_t i = live[*rc::gen::inRange<size_t>(0, live.size())];
    events.push_back(left[i][next[i]++]);
  }
}

RC_GTEST_PROP(RequestTracesTest, LimitsHoldAfterAnyEvent, ()) {
  const TraceLimits limits{.max_requests = *rc::gen::inRange(0, 5),
                           .max_bytes = *rc::gen::inRange(0, 200'000),
                           .max_request_bytes = *rc::gen::inRange(0, 60'000)};
  std::vector<FakeSearch> searches(*rc::gen::inRange(1, 8));
  for (size_t i = 0; i < searches.size(); ++i) {
    searches[i].request = static_cast<int64_t>(i);
    searches[i].num_beams = *rc::gen::inRange(1, 12);
    searches[i].num_steps = *rc::gen::inRange(1, 10);
    searches[i].ends = *rc::gen::inRange(0, 5) > 0;
  }
  // That a request has without events, and its number as its id.
  const int64_t max_own_bytes =
      static_cast<int64_t>(searches.size()) * (sizeof(RequestTrace) + 1);
  RequestTraces traces(limits);
  for (const TraceEvent& event : Mixed(searches)) {
    traces.On(event);
    RC_ASSERT(traces.num_ended() <= limits.max_requests);
    RC_ASSERT(traces.num_bytes() <= limits.max_bytes + max_own_bytes);
    RC_ASSERT(traces.num_bytes() >= 0);
  }
  for (const FakeSearch& search : searches) {
    const auto found = traces.Find(std::to_string(search.request));
    if (!found.ok()) continue;
    RC_ASSERT(found->size() == 1U);
    RC_ASSERT(EventsOf(*found->front()) == MakeUpTrace(search));
    RC_ASSERT(found->front()->num_bytes <= limits.max_request_bytes);
  }
}

// The counted bytes equal the traces' sizes.
RC_GTEST_PROP(RequestTracesTest, BytesAreThoseOfTheTraces, ()) {
  RequestTraces traces({.max_requests = *rc::gen::inRange(1, 5)});
  const int count = *rc::gen::inRange(0, 9);
  for (int i = 0; i < count; ++i) {
    Record(MakeUpTrace({.request = i,
                        .num_beams = *rc::gen::inRange(1, 6),
                        .num_steps = *rc::gen::inRange(1, 6)}),
           &traces);
  }
  int64_t num_bytes = 0;
  for (int i = 0; i < count; ++i) {
    const auto found = traces.Find(std::to_string(i));
    if (!found.ok()) continue;
    int64_t of_events = 0;
    for (const TraceEvent& event : found->front()->events) {
      of_events += NumBytes(event);
    }
    RC_ASSERT(found->front()->num_bytes > of_events);
    num_bytes += found->front()->num_bytes;
  }
  RC_ASSERT(num_bytes == traces.num_bytes());
}

TEST(RequestTracesTest, OthersReadWhileTheEngineWrites) {
  constexpr int kNumIds = 8;
  RequestTraces traces({.max_requests = 4, .max_bytes = 200'000});
  std::atomic<int> num_found = 0;
  std::atomic<bool> is_over = false;
  std::thread reader([&] {
    for (int i = 0; !is_over; ++i) {
      const auto found = traces.Find(std::to_string(i % kNumIds));
      EXPECT_LE(traces.num_ended(), 4);
      if (!found.ok()) continue;
      EXPECT_TRUE(
          std::holds_alternative<TraceEnd>(found->front()->events.back()));
      ++num_found;
    }
  });
  for (int i = 0; i < 100'000 && num_found < 200; ++i) {
    Record(SearchOf(i, std::to_string(i % kNumIds)), &traces);
  }
  is_over = true;
  reader.join();
  EXPECT_GE(num_found, 200);
}

}  // namespace
}  // namespace espalier::serve
