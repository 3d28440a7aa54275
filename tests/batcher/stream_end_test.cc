// Streams that end early: the reader or the engine is destroyed, or a caller
// stops waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <random>
#include <set>
#include <vector>

#include "tests/batcher/stream_fixture.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

class StreamEndTest : public StreamFixture {};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, StreamEndTest, ::testing::Values(1, 2));

// In every way, at every moment.
TEST_P(StreamEndTest, AReaderThatVanishesEndsItsRequestAndNoOther) {
  const auto requests = RandomStreamRequests(5, 31, model_.description());
  enum Way { kDestroyed, kCancelledReading, kDestroyedReading, kEnd };
  for (int moment = 0; moment < 18; ++moment) {
    for (int way = 0; way < kEnd; ++way) {
      readers_.clear();
      OpenAll(requests);
      RunSteps(moment / 2);
      Reader& victim = *readers_[moment % 5];
      if (way != kDestroyed) ReadAll(victim);  // it waits now
      if (way == kCancelledReading) {
        victim.signal->emit(asio::cancellation_type::terminal);
        Poll();
        EXPECT_FALSE(victim.waits);
        if (!victim.log.result.has_value()) {
          EXPECT_THAT(*victim.end, StatusIs(absl::StatusCode::kCancelled,
                                            "cancelled by its caller"));
        }
      }
      victim.stream.reset();
      Poll();
      EXPECT_FALSE(victim.waits);  // Next was answered
      RunSteps(kAllSteps);
      ExpectNothingHeld();
      for (size_t i = 0; i < requests.size(); ++i) {
        if (readers_[i].get() == &victim) continue;
        ReadAll(*readers_[i]);
        ExpectAsAlone(requests[i], *readers_[i]);
      }
    }
  }
}

// The reader of three samples reads nothing until all other requests have their
// results, and then leaves early or reads everything.
TEST_P(StreamEndTest, ASlowReaderOfSeveralSamplesDelaysNoOtherRequest) {
  Request request{{1, 2, 3}, {}};
  request.params.do_sample = true;
  request.params.seed = 5;
  request.params.num_return_sequences = 3;
  request.params.max_new_tokens = 6;
  ASSERT_OK(ValidateRequest(model_.description(), &request));
  Request longer = request;
  longer.params.max_new_tokens = 12;
  longer.params.eos_token_id = std::vector<int64_t>();
  for (const bool goes : {true, false}) {
    readers_.clear();
    OpenAll({request, longer, request});
    Reader& slow = *readers_[1];
    RunSteps(8);  // the others are done
    for (const int i : {0, 2}) {
      ReadAll(*readers_[i]);
      ExpectAsAlone(request, *readers_[i]);
    }
    if (goes) {
      slow.stream.reset();
      RunSteps(GetParam() +
               1);  // those in flight, and one that names what ended
      EXPECT_EQ(steps_.num_started(), 0);
      ExpectNothingHeld();
      continue;
    }
    RunSteps(kAllSteps);
    ExpectNothingHeld();
    ReadAll(slow);
    EXPECT_EQ(slow.num_events, 4);  // one a sample, and the result
    ExpectAsAlone(longer, slow);
  }
}

// The awaited event may be at any stage of its way.
TEST_P(StreamEndTest, CancellingNextLosesNothing) {
  std::mt19937 random(17);
  int num_cancelled = 0;
  std::set<const Reader*> cancelled;
  const auto cancel_some = [&] {
    for (const auto& reader : readers_) {
      if (random() % 2 == 0) continue;
      asio::post(context_, [&cancelled, victim = reader.get()] {
        if (!victim->waits) return;
        victim->signal->emit(asio::cancellation_type::terminal);
        cancelled.insert(victim);
      });
    }
  };
  const auto poll_a_little = [&] {
    context_.restart();
    for (int i = random() % 8; i > 0; --i) context_.poll_one();
  };
  for (int round = 0; round < 60; ++round) {
    readers_.clear();
    const auto requests =
        RandomStreamRequests(4, 300 + round, model_.description());
    for (const Request& request : requests) Open(request, {.beams = true});
    Poll();
    while (steps_.num_started() > 0) {
      for (const auto& reader : readers_) ReadAll(*reader);
      cancel_some();
      poll_a_little();
      steps_.RunStep();
      poll_a_little();
      cancel_some();
      Poll();
      for (const auto& reader : readers_) {
        if (cancelled.count(reader.get()) == 0) continue;
        // Even if an answer was there: its reader is cancelled.
        ASSERT_EQ(reader->end, absl::CancelledError("cancelled by its caller"));
        ++num_cancelled;
        reader->end.reset();
      }
      cancelled.clear();
    }
    ReadAllToTheEnd();
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectAsAlone(requests[i], *readers_[i]);
      ASSERT_FALSE(HasFailure()) << "round " << round << " request " << i;
    }
    ExpectNothingHeld();
  }
  EXPECT_GT(num_cancelled, 300);
}

TEST_P(StreamEndTest, AStreamWhoseReaderIsGoneGivesItsPagesBackAtOnce) {
  Request request{{1, 2, 3}, {}};
  request.params.max_new_tokens = 50;
  request.params.eos_token_id = std::vector<int64_t>();
  Reader& reader = Open(request);
  RunSteps(3);
  reader.stream.reset();
  RunSteps(GetParam() + 1);  // those in flight, and one that names what ended
  EXPECT_EQ(steps_.num_started(), 0);
  ExpectNothingHeld();
}

// The request may be anywhere between its reader and the engine.
TEST_P(StreamEndTest, OpeningCanBeCancelledAtAnyMoment) {
  const Request request = RandomStreamRequests(1, 5, model_.description())[0];
  int num_cancelled = 0;
  for (int moment = 0; moment < 8; ++moment) {
    Reader& reader = Open(request);
    context_.restart();
    for (int i = 0; i < moment; ++i) context_.poll_one();
    reader.signal->emit(asio::cancellation_type::terminal);
    Poll();
    ASSERT_TRUE(reader.stream.has_value());
    if (!reader.stream->ok()) {
      ++num_cancelled;
      EXPECT_THAT(*reader.stream, StatusIs(absl::StatusCode::kCancelled,
                                           "cancelled by its caller"));
    }
    reader.stream.reset();
    RunSteps(kAllSteps);
    ExpectNothingHeld();
  }
  EXPECT_GT(num_cancelled, 0);
  EXPECT_LT(num_cancelled, 8);
}

TEST_P(StreamEndTest, ShutdownEndsStreamsAfterWhatTheyHadToTell) {
  Request request{{1, 2, 3}, {}};
  request.params.max_new_tokens = 50;
  request.params.eos_token_id = std::vector<int64_t>();
  Reader& behind = Open(request);
  Reader& waiting = Open(request);
  RunSteps(4);
  ReadAll(waiting);
  ASSERT_TRUE(waiting.waits);
  asio::co_spawn(context_, engine_->Shutdown(), asio::detached);
  Poll();
  ReadAll(behind);
  for (const Reader* reader : {&behind, &waiting}) {
    ASSERT_TRUE(reader->end.has_value());
    EXPECT_THAT(*reader->end, StatusIs(absl::StatusCode::kCancelled,
                                       "the engine is shut down"));
    EXPECT_EQ(reader->log.samples.at(0).tokens.size(), 4);
  }
  RunSteps(kAllSteps);
  ExpectNothingHeld();
  const Reader& late = Open(request);
  Poll();
  EXPECT_THAT(*late.stream, StatusIs(absl::StatusCode::kCancelled,
                                     "the engine is shut down"));
}

TEST_P(StreamEndTest, StreamsOutliveTheEngine) {
  Request request{{1, 2, 3}, {}};
  request.params.max_new_tokens = 50;
  request.params.eos_token_id = std::vector<int64_t>();
  Reader& read = Open(request);
  Open(request);  // is never read
  RunSteps(3);
  engine_.reset();
  ReadAll(read);
  EXPECT_THAT(*read.end, StatusIs(absl::StatusCode::kCancelled,
                                  "the engine is shut down"));
  RunSteps(kAllSteps);
  readers_.clear();
  Poll();
}

}  // namespace
}  // namespace espalier
