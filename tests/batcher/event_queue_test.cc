#include "batcher/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns the next batch for a reader that has received `num_received`; nothing
// if no event waits.
std::optional<EventBatch> ReadNow(EventQueue& queue, int num_received = 0) {
  std::optional<EventBatch> read;
  queue.Read(num_received, [&](const auto& batch) { read = *batch; });
  if (!read.has_value()) queue.Read(num_received, nullptr);
  return read;
}

TEST(EventQueueTest, UnreadEventsOfASampleAreMerged) {
  EventQueue queue;
  queue.Extend(SampleEvent{.sample = 2, .tokens = {1}, .text = "a"});
  queue.Extend(SampleEvent{.sample = 0, .tokens = {2}, .text = "b"});
  queue.Extend(SampleEvent{.sample = 2,
                           .tokens = {3, 4},
                           .text = "c",
                           .finish_reason = FinishReason::kEos});
  const auto batch = ReadNow(queue);
  ASSERT_TRUE(batch.has_value());
  EXPECT_FALSE(batch->end.has_value());
  ASSERT_THAT(batch->events, SizeIs(2));
  const auto& first = std::get<SampleEvent>(batch->events[0]);
  EXPECT_EQ(first.sample, 2);
  EXPECT_THAT(first.tokens, ElementsAre(1, 3, 4));
  EXPECT_EQ(first.text, "ac");
  EXPECT_EQ(first.finish_reason, FinishReason::kEos);
  const auto& second = std::get<SampleEvent>(batch->events[1]);
  EXPECT_EQ(second.sample, 0);
  EXPECT_THAT(second.tokens, ElementsAre(2));
  EXPECT_EQ(second.finish_reason, std::nullopt);
  EXPECT_FALSE(ReadNow(queue, 1).has_value());
}

TEST(EventQueueTest, PrefixesAreMergedAndBeamsReplaced) {
  EventQueue queue;
  for (int step = 1; step <= 1000; ++step) {
    queue.Extend(StablePrefixEvent{.tokens = {step}, .text = "x"});
    queue.Replace(BeamsEvent{.num_steps = step});
    queue.Flush();
  }
  const auto batch = ReadNow(queue);
  ASSERT_TRUE(batch.has_value());
  ASSERT_THAT(batch->events, SizeIs(2));
  EXPECT_THAT(std::get<StablePrefixEvent>(batch->events[0]).tokens,
              SizeIs(1000));
  EXPECT_EQ(std::get<StablePrefixEvent>(batch->events[0]).text,
            std::string(1000, 'x'));
  EXPECT_EQ(std::get<BeamsEvent>(batch->events[1]).num_steps, 1000);
}

TEST(EventQueueTest, AReaderWhoWaitsIsServedOnceByTheNextFlush) {
  EventQueue queue;
  int num_served = 0;
  queue.Read(0, [&](const auto& batch) {
    ++num_served;
    EXPECT_THAT(batch->events, SizeIs(2));
  });
  queue.Flush();
  EXPECT_EQ(num_served, 0);
  queue.Extend(SampleEvent{.sample = 0, .tokens = {1}});
  queue.Extend(SampleEvent{.sample = 1, .tokens = {1}});
  EXPECT_EQ(num_served, 0);
  queue.Flush();
  EXPECT_EQ(num_served, 1);
  queue.Extend(SampleEvent{.sample = 0, .tokens = {1}});
  queue.Flush();
  EXPECT_EQ(num_served, 1);
}

TEST(EventQueueTest, ABatchThatGotLostComesAgain) {
  EventQueue queue;
  queue.Extend(StablePrefixEvent{.tokens = {1}});
  for (int i = 0; i < 3; ++i) {
    const auto batch = ReadNow(queue, 0);
    ASSERT_TRUE(batch.has_value());
    ASSERT_THAT(batch->events, SizeIs(1));
    EXPECT_THAT(std::get<StablePrefixEvent>(batch->events[0]).tokens,
                ElementsAre(1));
    queue.Extend(StablePrefixEvent{.tokens = {2 + i}});
    queue.Flush();
  }
  queue.End(Result());
  const auto rest = ReadNow(queue, 1);
  ASSERT_TRUE(rest.has_value());
  ASSERT_THAT(rest->events, SizeIs(2));
  EXPECT_THAT(std::get<StablePrefixEvent>(rest->events[0]).tokens,
              ElementsAre(2, 3, 4));
  EXPECT_TRUE(ReadNow(queue, 1)->end.has_value());  // the last, too
}

TEST(EventQueueTest, ANewReaderTakesThePlaceOfTheOneWhoWaits) {
  EventQueue queue;
  bool old_is_served = false;
  queue.Read(0, [&](const auto&) { old_is_served = true; });
  EXPECT_FALSE(ReadNow(queue).has_value());
  queue.End(Result());
  EXPECT_FALSE(old_is_served);
}

TEST(EventQueueTest, TheResultOrTheErrorIsTheLast) {
  EventQueue good;
  good.Extend(StablePrefixEvent{.tokens = {1}});
  good.End(Result());
  const auto batch = ReadNow(good);
  ASSERT_TRUE(batch.has_value());
  EXPECT_TRUE(std::holds_alternative<Result>(batch->events.back()));
  EXPECT_EQ(batch->end, absl::OkStatus());

  EventQueue bad;
  bad.Extend(StablePrefixEvent{.tokens = {1}});
  bad.End(absl::DataLossError("lost"));
  const auto rest = ReadNow(bad);
  ASSERT_TRUE(rest.has_value());
  EXPECT_THAT(rest->events, SizeIs(1));
  EXPECT_THAT(*rest->end, StatusIs(absl::StatusCode::kDataLoss, "lost"));
  EXPECT_EQ(bad.error(), *rest->end);
}

}  // namespace
}  // namespace espalier
