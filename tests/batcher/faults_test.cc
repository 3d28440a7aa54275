// Random faults of models and executors over random mixtures of requests: beams
// of all kinds, samples, streams, shared prefixes, too few pages, asynchronous
// scheduling. A request without a fault gets the result that it gets alone, to
// the bit; one with a fault ends once; and afterwards no page contains anything
// of the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/fault_injection.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/faulty_executor.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Small and few pages: groups are preempted, and many copy their tails.
ToyModelOptions FewPages() {
  ToyModelOptions options = SmallModel(2);
  options.num_pages = 24;
  return options;
}

// Many begin alike.
std::vector<Request> Mixture(int count, uint32_t seed,
                             const ModelDescription& model) {
  std::vector<Request> requests = RandomRequests(count, seed, model);
  std::mt19937 random(seed);
  const std::vector<TokenId> common = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4};
  for (Request& request : requests) {
    if (random() % 4 == 0) continue;
    std::vector<TokenId>& prompt = request.prompt_tokens;
    const size_t num_common = std::min(prompt.size(), random() % 14);
    std::copy_n(common.begin(), std::min(num_common, common.size()),
                prompt.begin());
  }
  return requests;
}

asio::awaitable<absl::StatusOr<Result>> Ask(Engine& engine, Request request,
                                            bool streams) {
  if (!streams) co_return co_await engine.Generate(std::move(request));
  auto stream = co_await engine.Stream(std::move(request));
  if (!stream.ok()) co_return stream.status();
  std::optional<Result> result;
  while (true) {
    auto event = co_await stream->Next();
    if (!event.ok()) co_return event.status();
    if (!event->has_value()) co_return *std::move(result);
    if (auto* end = std::get_if<Result>(&**event)) result = std::move(*end);
  }
}

using Answers = std::vector<absl::StatusOr<Result>>;

Answers AskAll(Engine& engine, const std::vector<Request>& requests,
               asio::io_context* context) {
  std::vector<std::future<absl::StatusOr<Result>>> futures;
  for (size_t i = 0; i < requests.size(); ++i) {
    futures.push_back(asio::co_spawn(
        *context, Ask(engine, requests[i], i % 3 == 0), asio::use_future));
  }
  context->restart();
  context->run();
  Answers answers;
  for (auto& future : futures) answers.push_back(future.get());
  return answers;
}

bool IsAsAlone(const absl::StatusOr<Result>& answer,
               const absl::StatusOr<Result>& alone) {
  if (answer.status() != alone.status()) return false;
  if (!answer.ok()) return true;
  Result result = *answer;  // cached tokens differ
  result.usage.num_cached_tokens = alone->usage.num_cached_tokens;
  return SameResult(result, *alone);
}

struct Counts {
  int num_faults = 0;
  int num_ended = 0;  // by faults
  int num_touched = 0;
  int num_answers = 0;
  int64_t num_preemptions = 0;
  int64_t num_cached_tokens = 0;
};

void RunMixture(uint32_t seed, int plans_in_flight, Counts* counts) {
  const ToyModelOptions options = FewPages();
  Victims victims;
  FaultyModel model(options, &victims);
  const auto requests = Mixture(12, seed, model.description());
  const auto steps = std::make_shared<FaultyExecutor>(
      &model, plans_in_flight > 1, &requests, &victims, seed);
  EngineOptions engine_options = Validated(8);
  engine_options.scheduler.max_step_tokens = 24;
  engine_options.scheduler.prefix_cache = seed % 4 != 0;
  asio::io_context context;
  Engine engine = MakeEngine(context.get_executor(), steps, engine_options);

  Answers alone;
  for (const Request& request : requests) {
    alone.push_back(RunAlone(options, request));
  }
  const Answers answers = AskAll(engine, requests, &context);
  int64_t num_unnamed = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(Concat("request ", i));
    ++counts->num_answers;
    if (victims.Has(i)) ++counts->num_touched;
    if (IsAsAlone(answers[i], alone[i])) continue;
    if (!victims.Has(i)) ++num_unnamed;
    if (answers[i].ok()) {
      EXPECT_TRUE(victims.Has(i));
      continue;
    }
    ++counts->num_ended;
    EXPECT_THAT(answers[i].status().ToString(),
                AnyOf(HasSubstr(kFaultMessage), HasSubstr("threw"),
                      HasSubstr("not enough memory for a step"),
                      HasSubstr("dropped a step"), HasSubstr("answered with"),
                      HasSubstr("its answer of"), HasSubstr("token 1048576"),
                      HasSubstr("no token is possible"), HasSubstr("NaN")));
  }
  EXPECT_LE(num_unnamed, victims.num_copies());
  counts->num_faults += steps->num_faults();

  // The pages now hold the keys and values that the scheduler expects.
  steps->Recover();
  const Answers again = AskAll(engine, requests, &context);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(IsAsAlone(again[i], alone[i])) << "again, request " << i;
  }
  auto stats = asio::co_spawn(context, engine.Stats(), asio::use_future);
  context.restart();
  context.run();
  const EngineStats held = stats.get();
  EXPECT_EQ(held.num_pages_held, 0);
  counts->num_preemptions += held.num_preemptions;
  counts->num_cached_tokens += held.num_cached_tokens;
  EXPECT_EQ(held.num_running + held.num_waiting + held.num_preempted, 0);
}

class FaultMixtureTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, FaultMixtureTest,
                         ::testing::Values(1, 2));

TEST_P(FaultMixtureTest, WhoIsNotTouchedGetsWhatItGetsAlone) {
  Counts counts;
  const int num_seeds = Cases(300, 30);
  for (int seed = 0; seed < num_seeds; ++seed) {
    SCOPED_TRACE(Concat("seed ", seed));
    RunMixture(seed, GetParam(), &counts);
    ASSERT_FALSE(HasFailure());
  }
  std::printf(
      "%d faults: of %d requests %d touched and %d ended; %d preempted\n",
      counts.num_faults, counts.num_answers, counts.num_touched,
      counts.num_ended, static_cast<int>(counts.num_preemptions));
  EXPECT_GT(counts.num_faults, num_seeds);
  EXPECT_GT(counts.num_ended, num_seeds);
  EXPECT_LT(counts.num_touched, counts.num_answers);
  EXPECT_GT(counts.num_preemptions, 0);
  EXPECT_GT(counts.num_cached_tokens, 0);
}

// Pages that were counted are not there: the requests that run end, once each,
// and nothing of them is left. At every place where pages are taken, in turn.
TEST_P(FaultMixtureTest, PagesThatRunOutWithinAPlanEndThoseThatRun) {
  const ToyModelOptions options = FewPages();
  Victims victims;
  const auto requests =
      Mixture(20, 5, FaultyModel(options, &victims).description());
  Answers alone;
  for (const Request& request : requests) {
    alone.push_back(RunAlone(options, request));
  }
  int num_ended = 0;
  int64_t num_good = 0;
  for (bool has_struck = true; has_struck; num_good += Cases(1, 7)) {
    SCOPED_TRACE(Concat("after ", num_good, " times"));
    FaultyModel model(options, &victims);
    asio::io_context context;
    Engine engine = MakeEngine(
        context.get_executor(),
        MakeExecutor(&model, 1, {.run_ahead = GetParam() > 1}), Validated(5));
    Answers answers;
    {
      const InjectedFault fault(FaultPoint::kTakePages, num_good);
      answers = AskAll(engine, requests, &context);
      has_struck = fault.has_struck();
    }
    const Answers again = AskAll(engine, requests, &context);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(IsAsAlone(again[i], alone[i])) << "again, request " << i;
      if (IsAsAlone(answers[i], alone[i])) continue;
      ++num_ended;
      EXPECT_THAT(answers[i].status().ToString(), HasSubstr("available"));
    }
    auto stats = asio::co_spawn(context, engine.Stats(), asio::use_future);
    context.restart();
    context.run();
    EXPECT_EQ(stats.get().num_pages_held, 0);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(num_good, 50);
  EXPECT_GT(num_ended, num_good / Cases(1, 7));
}

// Nothing is taken by what could not be made.
TEST(ThreadFaultTest, WithoutAThreadNothingIsMadeAndNothingHeld) {
  ToyModel model(SmallModel());
  asio::io_context context;
  const auto is_refused = StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("cannot start the thread of "));
  {
    const InjectedFault fault(FaultPoint::kStartThread, 0);
    EXPECT_THAT(ModelExecutor::Create(Unowned(&model), MakePool(1)),
                is_refused);
  }
  const auto steps = MakeExecutor(&model);
  EngineOptions options;
  options.step_timeout = absl::Seconds(60);
  {
    const InjectedFault fault(FaultPoint::kStartThread, 0);
    EXPECT_THAT(Engine::Create(context.get_executor(), steps, options),
                is_refused);
  }
  EXPECT_OK(Engine::Create(context.get_executor(), steps, options));
}

}  // namespace
}  // namespace espalier
