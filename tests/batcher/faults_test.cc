// Random faults of models and executors over random mixtures of requests:
// beams of all kinds, samples, streams, prefixes that are shared, too few
// pages, steps ahead. Who is not touched by a fault gets what it gets alone, to
// the bit; who is ends once; and afterwards nothing of the fault is left, in no
// page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <cstdio>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/fault_injection.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "executor/host/model_executor.h"
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

enum class Fault {
  kNone,
  // Of the model.
  kError,
  kErrorAfterGarbage,  // which it has written into the pages
  kThrow,
  kThrowANumber,
  kNoMemory,
  kNan,       // in all rows of one selection
  kInfinity,  // in one of them
  // Of the executor, which has run the step but for the first.
  kRefuse,
  kDrop,
  kTwice,
  kTooFew,
  kTooMany,
  kSwapped,
  kForeignToken,
  kNumFaults,
};

bool IsOfModel(Fault fault) {
  return fault > Fault::kNone && fault < Fault::kRefuse;
}

constexpr char kMessage[] = "a fault of the test";

// Who a fault may have touched.
class Victims {
 public:
  void Add(RequestId id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ids_.insert(id.value);
  }
  // All that a plan has. Chunks that select nothing do not name their request;
  // whose tokens they may be tells.
  void AddAll(const StepPlan& plan, const std::vector<Request>& requests) {
    for (const PlanSelection& s : plan.selections) Add(s.request);
    for (const GroupContinuation& c : plan.continuations) Add(c.request);
    for (const PlanPromptLogprobs& s : plan.scorings) Add(s.request);
    const std::lock_guard<std::mutex> lock(mutex_);
    num_copies_ += std::ssize(plan.page_copies);
    for (const PlanRow& row : plan.rows) {
      if (row.num_logits > 0) continue;
      const auto tokens = plan.row_tokens(row);
      for (size_t i = 0; i < requests.size(); ++i) {
        if (MayFeed(requests[i], row.first_position, tokens)) ids_.insert(i);
      }
    }
  }
  bool Has(int64_t id) const { return ids_.contains(id); }
  // A group of whom a plan has a copy and nothing else ends with it, too.
  int64_t num_copies() const { return num_copies_; }

 private:
  // Of what is fed again the prompt's tokens alone are known.
  static bool MayFeed(const Request& request, size_t first,
                      std::span<const TokenId> tokens) {
    const std::vector<TokenId>& prompt = request.prompt_tokens;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (first + i >= prompt.size()) return true;
      if (prompt[first + i] != tokens[i]) return false;
    }
    return true;
  }

  std::mutex mutex_;
  std::set<int64_t> ids_;
  int64_t num_copies_ = 0;
};

class FaultyModel : public Model {
 public:
  FaultyModel(const ToyModelOptions& options, Victims* victims)
      : model_(options), description_(model_.description()), victims_(victims) {
    description_.has_shareable_pages = true;
  }

  const ModelDescription& description() const override { return description_; }

  // One for each call of Forward.
  void Push(Fault fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    faults_.push_back(fault);
  }

  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    switch (Pop()) {
      case Fault::kError:
        return absl::DataLossError(kMessage);
      case Fault::kErrorAfterGarbage: {
        StepPlan garbage = plan;
        for (TokenId& token : garbage.tokens) {
          token = (token + 3) % description_.vocab_size;
        }
        RETURN_IF_ERROR(model_.Forward(garbage, logits));
        return absl::DataLossError(kMessage);
      }
      case Fault::kThrow:
        throw std::runtime_error(kMessage);
      case Fault::kThrowANumber:
        throw 7;
      case Fault::kNoMemory:
        throw std::bad_alloc();
      case Fault::kNan:
        return Spoil(plan, std::numeric_limits<float>::quiet_NaN(), true,
                     logits);
      case Fault::kInfinity:
        return Spoil(plan, std::numeric_limits<float>::infinity(), false,
                     logits);
      default:
        return model_.Forward(plan, logits);
    }
  }

 private:
  Fault Pop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (faults_.empty()) return Fault::kNone;
    const Fault fault = faults_.front();
    faults_.erase(faults_.begin());
    return fault;
  }

  // The logits of one selection, or one of them.
  absl::Status Spoil(const StepPlan& plan, float value, bool all,
                     std::span<float> logits) {
    RETURN_IF_ERROR(model_.Forward(plan, logits));
    const auto found =
        std::ranges::find_if(plan.selections, [](const PlanSelection& s) {
          return s.num_rows > 0;  // not of a group that went too far ahead
        });
    if (found == plan.selections.end()) return absl::OkStatus();
    const PlanSelection& victim = *found;
    victims_->Add(victim.request);
    const size_t vocab_size = description_.vocab_size;
    const auto rows = logits.subspan(victim.first_logits * vocab_size,
                                     victim.num_rows * vocab_size);
    if (all) {
      std::ranges::fill(rows, value);
    } else {
      rows[vocab_size / 2] = value;
    }
    return absl::OkStatus();
  }

  ToyModel model_;
  ModelDescription description_;
  Victims* const victims_;
  std::mutex mutex_;
  std::vector<Fault> faults_;
};

class FaultyExecutor : public StepExecutor {
 public:
  FaultyExecutor(FaultyModel* model, bool run_ahead,
                 const std::vector<Request>* requests, Victims* victims,
                 uint32_t seed)
      : model_(model),
        steps_(MakeExecutor(model, 1, {.run_ahead = run_ahead})),
        requests_(requests),
        victims_(victims),
        random_(seed) {}

  const ModelDescription& description() const override {
    return steps_->description();
  }
  int max_plans_in_flight() const override {
    return steps_->max_plans_in_flight();
  }
  void Execute(StepPlan plan, Done done) override {
    Fault fault = Fault::kNone;
    if (may_fail_ && !plan.empty() && random_() % 6 == 0) {
      fault = Fault(1 + random_() % (int(Fault::kNumFaults) - 1));
      ++num_faults_;
    }
    if (fault != Fault::kNan && fault != Fault::kInfinity &&
        fault != Fault::kTwice && fault != Fault::kNone) {
      victims_->AddAll(plan, *requests_);
    }
    // Nobody is told of what a plan that is not run had ended.
    if (fault == Fault::kRefuse) throw std::runtime_error(kMessage);
    model_->Push(IsOfModel(fault) ? fault : Fault::kNone);
    steps_->Execute(std::move(plan), Spoilt(fault, std::move(done)));
  }

  void Recover() { may_fail_ = false; }
  int num_faults() const { return num_faults_; }

 private:
  static Done Spoilt(Fault fault, Done done) {
    if (fault == Fault::kDrop) return [done](const auto&) {};
    if (fault <= Fault::kRefuse) return done;
    return [fault, done](absl::StatusOr<StepResult> result) {
      if (fault == Fault::kTwice) done(result);
      if (result.ok()) SpoilAnswer(fault, &*result);
      done(std::move(result));
    };
  }
  static void SpoilAnswer(Fault fault, StepResult* result) {
    auto& selections = result->selections;
    if (fault == Fault::kTooMany) selections.emplace_back();
    if (selections.empty()) return;
    if (fault == Fault::kTooFew) selections.pop_back();
    if (fault == Fault::kSwapped) {
      std::swap(selections.front(), selections.back());
    }
    if (fault == Fault::kForeignToken && !selections[0].candidates.empty()) {
      selections[0].candidates[0].token = 1 << 20;
    }
  }

  FaultyModel* const model_;
  const std::shared_ptr<ModelExecutor> steps_;
  const std::vector<Request>* const requests_;
  Victims* const victims_;
  std::mt19937 random_;
  bool may_fail_ = true;
  int num_faults_ = 0;
};

// Of small pages and few of them: groups are put away, and many copy tails.
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
  Result result = *answer;  // what was cached is not the same
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
                AnyOf(HasSubstr(kMessage), HasSubstr("threw"),
                      HasSubstr("not enough memory for a step"),
                      HasSubstr("dropped a step"), HasSubstr("answered with"),
                      HasSubstr("its answer of"), HasSubstr("token 1048576"),
                      HasSubstr("no token is possible"), HasSubstr("NaN")));
  }
  EXPECT_LE(num_unnamed, victims.num_copies());
  counts->num_faults += steps->num_faults();

  // What is in pages now is what it is said to be.
  steps->Recover();
  const Answers again = AskAll(engine, requests, &context);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(IsAsAlone(again[i], alone[i])) << "again, request " << i;
  }
  auto figures = asio::co_spawn(context, engine.Figures(), asio::use_future);
  context.restart();
  context.run();
  const EngineFigures held = figures.get();
  EXPECT_EQ(held.num_pages_held, 0);
  counts->num_preemptions += held.scheduler.num_preemptions;
  counts->num_cached_tokens += held.scheduler.num_cached_tokens;
  EXPECT_EQ(held.num_running + held.num_waiting + held.num_away, 0);
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
      "%d faults: of %d requests %d touched and %d ended; %d put away\n",
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
    auto figures = asio::co_spawn(context, engine.Figures(), asio::use_future);
    context.restart();
    context.run();
    EXPECT_EQ(figures.get().num_pages_held, 0);
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
