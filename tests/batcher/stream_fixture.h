// An engine whose every step is under a test's control, and readers of its
// streams that read when the test calls them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "batcher/engine.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/stream_log.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::testing {

constexpr int kAllSteps = 1 << 20;

// A reader under the test's control: it reads when it is called.
struct Reader {
  std::optional<absl::StatusOr<ResultStream>> stream;
  StreamLog log;
  int num_events = 0;
  bool waits = false;
  std::optional<absl::Status> end;
  std::unique_ptr<boost::asio::cancellation_signal> signal =
      std::make_unique<boost::asio::cancellation_signal>();
};

// The parameter says how many plans are in flight.
class StreamFixture : public ::testing::TestWithParam<int> {
 protected:
  StreamFixture() {
    EngineOptions options = Validated(4);
    options.tokenizer = SharedEnFrTokenizer();
    engine_ = std::make_unique<Engine>(
        MakeEngine(context_.get_executor(), &steps_, options));
  }

  Reader& Open(const Request& request, StreamOptions options = {}) {
    Reader& reader = *readers_.emplace_back(std::make_unique<Reader>());
    boost::asio::co_spawn(
        context_, engine_->Stream(request, options),
        boost::asio::bind_cancellation_slot(
            reader.signal->slot(),
            [&](std::exception_ptr, absl::StatusOr<ResultStream> stream) {
              reader.stream = std::move(stream);
            }));
    return reader;
  }
  void OpenAll(const std::vector<Request>& requests) {
    for (const Request& request : requests) Open(request);
    Poll();
  }
  // Reads one event, or waits for it.
  void Read(Reader& reader) {
    if (reader.waits || reader.end.has_value()) return;
    ASSERT_TRUE(reader.stream.has_value());
    ASSERT_OK(*reader.stream);
    reader.waits = true;
    boost::asio::co_spawn(
        context_, (*reader.stream)->Next(),
        boost::asio::bind_cancellation_slot(
            reader.signal->slot(),
            [&](std::exception_ptr,
                absl::StatusOr<std::optional<StreamEvent>> event) {
              reader.waits = false;
              if (!event.ok()) {
                reader.end = event.status();
              } else if (!event->has_value()) {
                reader.end = absl::OkStatus();
              } else {
                ++reader.num_events;
                reader.log.Take(**event);
              }
            }));
    Poll();
  }
  // Reads until it waits.
  void ReadAll(Reader& reader) {
    while (!reader.waits && !reader.end.has_value()) Read(reader);
  }
  void ReadAllToTheEnd() {
    for (const auto& reader : readers_) {
      RunSteps(kAllSteps);
      ReadAll(*reader);
    }
  }
  void Poll() {
    context_.restart();
    context_.poll();
  }
  void RunSteps(int count) {
    Poll();
    for (; count > 0 && steps_.num_started() > 0; --count) {
      steps_.RunStep();
      Poll();
    }
  }
  void ExpectAsAlone(const Request& request, const Reader& reader) {
    ASSERT_TRUE(reader.end.has_value());
    ExpectIsAsAlone(request, reader.log, *reader.end);
  }
  void ExpectNothingHeld() {
    std::future<EngineStats> future = boost::asio::co_spawn(
        context_, engine_->Stats(), boost::asio::use_future);
    Poll();
    const EngineStats stats = future.get();
    EXPECT_EQ(stats.num_pages_held, 0);
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(model_.num_sequences(), 0);
    EXPECT_EQ(steps_.num_groups(), 0);
  }

  ToyModel model_{ByteModel(GetParam())};
  ManualExecutor steps_{&model_, GetParam()};  // the context's end uses it
  boost::asio::io_context context_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Reader>> readers_;  // before the context goes
};

}  // namespace espalier::testing
