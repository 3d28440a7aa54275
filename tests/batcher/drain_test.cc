// Engine::Drain: an orderly end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "tests/batcher/stream_fixture.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

const auto kRefused = StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("takes no more requests"));

class DrainTest : public StreamFixture {
 protected:
  // Sets `*ended` when the drain, or shutdown, ends, in whatever way.
  void Await(asio::awaitable<void> end, bool* ended) {
    asio::co_spawn(context_, std::move(end),
                   [ended](const std::exception_ptr&) { *ended = true; });
    Poll();
  }
  void ExpectRefused(const Request& request) {
    Reader& late = Open(request);
    Poll();
    ASSERT_TRUE(late.stream.has_value());
    EXPECT_THAT(*late.stream, kRefused);
    readers_.pop_back();
  }
};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, DrainTest, ::testing::Values(1, 2));

// Four run at a time. At each moment, and with nothing to wait for.
TEST_P(DrainTest, WhatWaitsAndRunsEndsAndNothingElseIsTaken) {
  const auto requests = RandomStreamRequests(9, 61, model_.description());
  for (int moment = 0; moment < 12; ++moment) {
    readers_.clear();
    engine_ = nullptr;
    RunSteps(kAllSteps);
    EngineOptions options = Validated(4);
    options.tokenizer = SharedEnFrTokenizer();
    engine_ = std::make_unique<Engine>(
        MakeEngine(context_.get_executor(), &steps_, options));
    OpenAll(requests);
    RunSteps(moment);
    bool drained = false;
    bool drained_again = false;
    Await(engine_->Drain(), &drained);
    EXPECT_FALSE(drained);
    ExpectRefused(requests[0]);
    RunSteps(2);
    Await(engine_->Drain(), &drained_again);
    ExpectRefused(requests[0]);
    RunSteps(kAllSteps);
    EXPECT_TRUE(drained);
    EXPECT_TRUE(drained_again);
    ExpectNothingHeld();
    for (size_t i = 0; i < requests.size(); ++i) {
      ReadAll(*readers_[i]);
      ExpectAsAlone(requests[i], *readers_[i]);
    }
    ExpectRefused(requests[0]);
    drained = false;
    Await(engine_->Drain(), &drained);
    EXPECT_TRUE(drained);
  }
}

TEST_P(DrainTest, AShutdownCutsItShort) {
  bool drained = false;
  bool stopped = false;
  Reader& reader = Open(LongRequest(100));
  RunSteps(3);
  Await(engine_->Drain(), &drained);
  Await(engine_->Shutdown("enough"), &stopped);
  ReadAll(reader);
  EXPECT_THAT(*reader.end, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_FALSE(drained);  // a step runs
  RunSteps(kAllSteps);
  EXPECT_TRUE(drained);
  EXPECT_TRUE(stopped);
  Reader& late = Open(LongRequest(1));
  Poll();
  EXPECT_THAT(*late.stream, StatusIs(absl::StatusCode::kCancelled, "enough"));
  ExpectNothingHeld();
}

TEST_P(DrainTest, ACallerMayStopWaitingForIt) {
  asio::cancellation_signal signal;
  bool ended = false;
  Reader& reader = Open(LongRequest(10));
  RunSteps(3);
  asio::co_spawn(context_, engine_->Drain(),
                 asio::bind_cancellation_slot(
                     signal.slot(), [&](const std::exception_ptr& error) {
                       ended = error != nullptr;
                     }));
  Poll();
  signal.emit(asio::cancellation_type::terminal);
  Poll();
  EXPECT_TRUE(ended);
  ExpectRefused(LongRequest(1));
  RunSteps(kAllSteps);
  ReadAll(reader);
  EXPECT_TRUE(reader.log.result.has_value());
}

TEST_P(DrainTest, TheEndOfTheEngineEndsIt) {
  bool drained = false;
  Open(LongRequest(100));
  RunSteps(3);
  Await(engine_->Drain(), &drained);
  engine_ = nullptr;
  RunSteps(kAllSteps);
  EXPECT_TRUE(drained);
}

}  // namespace
}  // namespace espalier
