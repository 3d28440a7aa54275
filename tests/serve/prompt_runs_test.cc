#include "serve/prompt_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "batcher/result_stream.h"
#include "request/request.h"
#include "tests/status_matchers.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

using ::espalier::testing::StatusIs;

using OnBatch = std::function<void(std::shared_ptr<EventBatch>)>;

std::vector<ResultStream> StreamOf(ResultStream::Source source) {
  std::vector<ResultStream> streams;
  streams.emplace_back(std::move(source));
  return streams;
}

// The first event of a stream.
absl::StatusOr<Result> FirstOf(ResultStream::Source source) {
  asio::io_context context;
  PromptRuns runs(context.get_executor());
  runs.Start(0, StreamOf(std::move(source)));
  std::optional<RunEvent> event;
  const auto read = [&]() -> asio::awaitable<void> {
    event = co_await runs.Next();
  };
  asio::co_spawn(context, read(), asio::detached);
  context.poll();
  if (!event) return absl::InternalError("no event");
  EXPECT_EQ(event->request, -1);
  return std::get<absl::StatusOr<Result>>(event->what);
}

TEST(PromptRunsTest, AnExceptionIsReportedByWhatItSays) {
  const auto error = [](const auto& exception) {
    return FirstOf({.read = [exception](int64_t,
                                        const OnBatch&) { throw exception; },
                    .cancel = [] {}})
        .status();
  };
  EXPECT_THAT(error(std::runtime_error("it broke")),
              StatusIs(absl::StatusCode::kInternal,
                       "an exception ended a request: it broke"));
  EXPECT_THAT(error(7), StatusIs(absl::StatusCode::kInternal,
                                 "an unknown exception ended a request"));
}

TEST(PromptRunsTest, ItsEndEndsCoroutinesThatWait) {
  asio::io_context context;
  std::vector<OnBatch> unanswered;
  int num_cancelled = 0;
  auto runs = std::make_unique<PromptRuns>(context.get_executor());
  runs->Start(0, StreamOf({.read =
                               [&](int64_t, OnBatch on_batch) {
                                 unanswered.push_back(std::move(on_batch));
                               },
                           .cancel = [&] { ++num_cancelled; }}));
  runs->StartPings();
  context.poll();
  EXPECT_EQ(unanswered.size(), 1);
  EXPECT_FALSE(context.stopped());
  asio::post(context, [&] { runs.reset(); });
  context.poll();
  EXPECT_TRUE(context.stopped());  // no coroutine is left
  EXPECT_GE(num_cancelled, 1);
}

}  // namespace
}  // namespace espalier::serve
