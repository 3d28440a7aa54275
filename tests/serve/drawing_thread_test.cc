// Drawings come in order, one at a time; what is too much, too late or thrown
// fails alone.
#include "serve/drawing_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

using Answers = std::vector<absl::StatusOr<TraceAnswer>>;

asio::awaitable<void> Ask(DrawingThread* drawing, DrawingThread::Draw draw,
                          Answers* answers) {
  absl::StatusOr<TraceAnswer> answer = co_await drawing->Run(std::move(draw));
  answers->push_back(std::move(answer));
}

DrawingThread::Draw Named(const std::string& name) {
  return [name] { return TraceAnswer{.body = name}; };
}

class DrawingThreadTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(drawing_.Start()); }
  void TearDown() override { LetGo(); }

  void Spawn(DrawingThread::Draw draw) {
    asio::co_spawn(context_, Ask(&drawing_, std::move(draw), &answers_),
                   asio::detached);
  }
  // A drawing that takes until LetGo. Returns once it has begun.
  void Hold() {
    Spawn([this] {
      has_begun_ = true;
      has_begun_.notify_all();
      may_end_.wait(false);
      return TraceAnswer{.body = "held"};
    });
    context_.poll();
    has_begun_.wait(false);
  }
  void LetGo() {
    may_end_ = true;
    may_end_.notify_all();
  }

  std::atomic<bool> has_begun_ = false;
  std::atomic<bool> may_end_ = false;
  asio::io_context context_;
  Answers answers_;
  DrawingThread drawing_;
};

TEST_F(DrawingThreadTest, AnswersInOrderAndWhatIsThrownIsAnError) {
  Spawn(Named("a"));
  Spawn([]() -> absl::StatusOr<TraceAnswer> { throw std::bad_alloc(); });
  Spawn([]() -> absl::StatusOr<TraceAnswer> {
    throw std::length_error("too long");
  });
  Spawn([]() -> absl::StatusOr<TraceAnswer> { return NotFound("none"); });
  Spawn(Named("b"));
  context_.run();
  ASSERT_EQ(answers_.size(), 5u);
  ASSERT_OK(answers_[0]);
  EXPECT_EQ(answers_[0]->body, "a");
  EXPECT_THAT(answers_[1].status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("memory")));
  EXPECT_THAT(answers_[2].status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("too long")));
  EXPECT_THAT(answers_[3].status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  ASSERT_OK(answers_[4]);
  EXPECT_EQ(answers_[4]->body, "b");
}

TEST_F(DrawingThreadTest, MoreThanMayWaitAreRefusedAtOnce) {
  Hold();
  for (int i = 0; i <= DrawingThread::kMaxWaiting; ++i) Spawn(Named("later"));
  context_.poll();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_[0].status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("16 traces wait to be drawn")));
  LetGo();
  context_.run();
  EXPECT_EQ(answers_.size(), 2u + DrawingThread::kMaxWaiting);
}

TEST_F(DrawingThreadTest, StopEndsWhatWaitsAndWaitsForWhatIsDrawn) {
  Hold();
  Spawn(Named("never"));
  Spawn(Named("never"));
  context_.poll();
  std::vector<std::jthread> stopping;
  for (int i = 0; i < 3; ++i) {
    stopping.emplace_back([this] { drawing_.Stop(); });
  }
  LetGo();
  stopping.clear();
  Spawn(Named("too late"));
  context_.run();
  ASSERT_EQ(answers_.size(), 4u);
  int num_drawn = 0;
  for (const auto& answer : answers_) {
    num_drawn += answer.ok();
    if (answer.ok()) continue;
    EXPECT_THAT(answer.status(), StatusIs(absl::StatusCode::kUnavailable,
                                          HasSubstr("shutting down")));
  }
  // The others were drawn if the first one was before any thread could stop.
  EXPECT_GE(num_drawn, 1);
  EXPECT_LE(num_drawn, 3);
}

TEST_F(DrawingThreadTest, WhoHasGoneIsNotDrawnForAndKeepsNoPlace) {
  Hold();
  asio::cancellation_signal leaves;
  bool is_drawn = false;
  asio::co_spawn(context_,
                 Ask(
                     &drawing_,
                     [&is_drawn]() -> absl::StatusOr<TraceAnswer> {
                       is_drawn = true;
                       return TraceAnswer{};
                     },
                     &answers_),
                 asio::bind_cancellation_slot(leaves.slot(), asio::detached));
  context_.poll();
  leaves.emit(asio::cancellation_type::terminal);
  context_.poll();
  for (int i = 0; i < DrawingThread::kMaxWaiting; ++i) Spawn(Named("b"));
  context_.poll();
  for (const auto& answer : answers_) {
    EXPECT_NE(answer.status().code(), absl::StatusCode::kResourceExhausted);
  }
  LetGo();
  context_.run();
  EXPECT_FALSE(is_drawn);
  int num_drawn = 0;
  for (const auto& answer : answers_) num_drawn += answer.ok();
  EXPECT_EQ(num_drawn, 1 + DrawingThread::kMaxWaiting);
}

TEST(StoppedDrawingThreadTest, WithoutAThreadItStopsAsWell) {
  DrawingThread drawing;
  drawing.Stop();
  drawing.Stop();
}

}  // namespace
}  // namespace espalier::serve
