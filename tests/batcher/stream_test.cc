// The events of a stream add up to the request's result: of any mixture of
// requests, however slowly it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "request/generation_params.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/stream_fixture.h"
#include "tests/batcher/stream_log.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StreamTest : public StreamFixture {};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, StreamTest, ::testing::Values(1, 2));

TEST_P(StreamTest, EventsAddUpToTheResultHoweverTheyAreRead) {
  std::mt19937 random(3);
  int num_stopped_by_text = 0;
  int num_failed = 0;
  for (int round = 0; round < 100; ++round) {
    readers_.clear();
    const auto requests =
        RandomStreamRequests(8, 100 + round, model_.description());
    for (const Request& request : requests) {
      Open(request, {.beams = random() % 2 == 0});
    }
    Poll();
    while (steps_.num_started() > 0) {
      RunSteps(1 + random() % 3);
      // Reader 0 is never behind, 7 comes at the end; the others at times.
      for (size_t i = 0; i < 7; ++i) {
        if (i == 0) ReadAll(*readers_[i]);
        if (random() % 8 > i) Read(*readers_[i]);
      }
    }
    ReadAllToTheEnd();
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectAsAlone(requests[i], *readers_[i]);
      ASSERT_FALSE(HasFailure()) << "round " << round << " request " << i;
      const std::optional<Result>& result = readers_[i]->log.result;
      num_failed += !result.has_value();
      if (!result.has_value() || requests[i].params.stop.empty()) continue;
      num_stopped_by_text +=
          result->hypotheses[0].finish_reason == FinishReason::kStop;
    }
    ExpectNothingHeld();
  }
  EXPECT_GT(num_stopped_by_text, 20);
  EXPECT_LT(num_failed, 200);
}

std::vector<TokenId> CommonPrefix(const std::vector<BeamState>& beams) {
  std::vector<TokenId> common = beams.at(0).tokens;
  for (const BeamState& beam : beams) {
    common.erase(std::ranges::mismatch(common, beam.tokens).in1, common.end());
  }
  return common;
}

TEST_P(StreamTest, ThePrefixIsCommonToLiveBeamsAndKeptHypotheses) {
  int num_early = 0;  // prefixes that grew before the end
  for (Request request : RandomStreamRequests(600, 7, model_.description())) {
    if (!IsBeams(request)) continue;
    Reader& reader = Open(request, {.beams = true});
    Poll();
    while (steps_.num_started() > 0) {
      RunSteps(1);
      ReadAll(reader);
      if (reader.log.beams.beams.empty()) continue;  // in the prompt
      EXPECT_EQ(reader.log.prefix.tokens, CommonPrefix(reader.log.beams.beams));
      num_early += !reader.end && !reader.log.prefix.tokens.empty();
    }
    ReadAllToTheEnd();
    if (!reader.end->ok()) continue;  // no token was possible
    const std::vector<BeamState>& beams = reader.log.beams.beams;
    const std::vector<Hypothesis>& hypotheses = reader.log.result->hypotheses;
    ASSERT_EQ(beams.size(), hypotheses.size());
    for (size_t i = 0; i < beams.size(); ++i) {
      EXPECT_EQ(beams[i].tokens, hypotheses[i].tokens);
      EXPECT_EQ(beams[i].score, hypotheses[i].score);
      EXPECT_EQ(beams[i].cum_log_prob, hypotheses[i].cum_log_prob);
      EXPECT_EQ(beams[i].finish_reason, hypotheses[i].finish_reason);
    }
  }
  EXPECT_GT(num_early, 100);
}

// One event a sample, the prefix, the beams and the result.
TEST_P(StreamTest, WhoReadsNothingIsOwedNoMoreThanTheOutput) {
  const auto requests = RandomStreamRequests(40, 11, model_.description());
  for (const Request& request : requests) {
    Reader& reader = Open(request, {.beams = true});
    RunSteps(kAllSteps);  // the engine does not wait for the reader
    ExpectNothingHeld();
    ReadAll(reader);
    const int num_samples = NumSequences(request.params);
    EXPECT_LE(reader.num_events, IsBeams(request) ? 3 : num_samples + 1);
    ExpectAsAlone(request, reader);
  }
}

TEST_P(StreamTest, ABadRequestGetsNoStream) {
  Request bad{{1, 999}, {}};
  const Reader& refused = Open(bad);
  Request huge{{1, 2}, {}};
  huge.params.num_beams = 4000;
  huge.params.max_new_tokens = 200;
  const Reader& unfit = Open(huge);
  Poll();
  EXPECT_THAT(*refused.stream, StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("prompt_tokens[1]")));
  EXPECT_THAT(*unfit.stream, StatusIs(absl::StatusCode::kResourceExhausted,
                                      HasSubstr("can never fit")));
  EXPECT_EQ(steps_.num_started(), 0);
  ExpectNothingHeld();
}

TEST_P(StreamTest, AfterTheEndThereIsNothing) {
  Request request{{1, 2, 3}, {}};
  Reader& reader = Open(request);
  RunSteps(kAllSteps);
  ReadAll(reader);
  ASSERT_TRUE(reader.log.result.has_value());
  for (int i = 0; i < 3; ++i) {
    reader.end.reset();
    Read(reader);
    ASSERT_TRUE(reader.end.has_value());
    EXPECT_OK(*reader.end);
  }
}

TEST_P(StreamTest, WithoutATokenizerThereAreTokensAlone) {
  engine_.reset();
  Poll();  // steps serve one engine at a time
  engine_ = std::make_unique<Engine>(
      MakeEngine(context_.get_executor(), &steps_, Validated()));
  for (Request request : RandomStreamRequests(20, 13, model_.description())) {
    if (!request.params.stop.empty()) {
      const Reader& refused = Open(request);
      Poll();
      EXPECT_THAT(
          *refused.stream,
          StatusIs(absl::StatusCode::kInvalidArgument,
                   HasSubstr("must be empty without a tokenizer, which")));
    }
    request.params.stop.clear();
    request.params.include_stop = false;
    Reader& reader = Open(request);
    RunSteps(kAllSteps);
    ReadAll(reader);
    ASSERT_TRUE(reader.end.has_value());
    EXPECT_EQ(reader.log.prefix.text, "");
    for (const auto& [sample, sample_log] : reader.log.samples) {
      EXPECT_EQ(sample_log.text, "");
      EXPECT_THAT(sample_log.tokens, ::testing::Not(IsEmpty()));
    }
  }
}

// Fails once a plan feeds token 7.
class FragileModel : public ToyModel {
 public:
  using ToyModel::ToyModel;
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    if (std::ranges::find(plan.tokens, 7) != plan.tokens.end()) {
      return absl::DataLossError("cannot do sevens");
    }
    return ToyModel::Forward(plan, logits);
  }
};

asio::awaitable<std::pair<StreamLog, absl::Status>> ReadToTheEnd(
    Engine& engine, Request request, int microseconds_an_event) {
  StreamLog log;
  absl::StatusOr<ResultStream> stream =
      co_await engine.Stream(std::move(request), {.beams = true});
  if (!stream.ok()) co_return std::pair(log, stream.status());
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (true) {
    absl::StatusOr<std::optional<StreamEvent>> event = co_await stream->Next();
    if (!event.ok()) co_return std::pair(log, event.status());
    if (!event->has_value()) break;
    log.Take(**event);
    if (microseconds_an_event == 0) continue;
    timer.expires_after(std::chrono::microseconds(microseconds_an_event));
    co_await timer.async_wait(asio::use_awaitable);
  }
  co_return std::pair(log, absl::OkStatus());
}

TEST(StreamErrorTest, AnErrorInTheMiddleComesAfterEarlierEvents) {
  ToyModelOptions options;
  options.eos_token_ids = {};
  FragileModel model(options);
  asio::io_context context;
  Engine engine =
      MakeEngine(context.get_executor(), MakeExecutor(&model), Validated());
  std::vector<std::future<std::pair<StreamLog, absl::Status>>> ends;
  for (int first = 1; first < 7; ++first) {
    Request request{{first}, {}};
    request.params.max_new_tokens = 40;
    ends.push_back(asio::co_spawn(context, ReadToTheEnd(engine, request, 0),
                                  asio::use_future));
  }
  context.run();
  for (auto& end : ends) {
    const auto [log, status] = end.get();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("cannot do sevens")));
    EXPECT_FALSE(log.result.has_value());
  }
}

// Readers of every pace on several threads, the engine on others, the model on
// its own; some vanish.
TEST(StreamThreadsTest, ManyReadersOnManyThreads) {
  const ToyModelOptions options = ByteModel(2);
  ToyModel model(options);
  asio::thread_pool engine_threads(2);
  asio::thread_pool reader_threads(3);
  EngineOptions engine_options = Validated(8);
  engine_options.tokenizer = SharedEnFrTokenizer();
  Engine engine =
      MakeEngine(engine_threads.get_executor(),
                 MakeExecutor(&model, 2, {.run_ahead = true}), engine_options);
  const auto requests = RandomStreamRequests(150, 53, model.description());
  std::vector<std::future<std::pair<StreamLog, absl::Status>>> logs;
  std::vector<std::future<void>> vanishing;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int pace = i % 3 == 0 ? 0 : i % 3 == 1 ? 50 : 2000;
    logs.push_back(asio::co_spawn(reader_threads,
                                  ReadToTheEnd(engine, requests[i], pace),
                                  asio::use_future));
    if (i % 5 > 0) continue;
    vanishing.push_back(asio::co_spawn(
        reader_threads,
        [&engine, request = requests[i],
         count = i % 4]() -> asio::awaitable<void> {
          auto stream = co_await engine.Stream(request);
          CHECK(stream.ok());
          for (size_t k = 0; k < count; ++k) (void)co_await stream->Next();
        },
        asio::use_future));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [log, status] = logs[i].get();
    ExpectIsAsAlone(requests[i], log, status);
    ASSERT_FALSE(HasFailure()) << i;
  }
  for (auto& reader : vanishing) reader.get();
  asio::co_spawn(reader_threads, engine.Shutdown(), asio::use_future).get();
  const EngineStats stats =
      asio::co_spawn(reader_threads, engine.Stats(), asio::use_future).get();
  EXPECT_EQ(stats.num_pages_held, 0);
}

}  // namespace
}  // namespace espalier
