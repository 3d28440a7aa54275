// Lists of legal tokens that take long are made beside the strand: a group that
// awaits them plans nothing, the others continue, and no result changes.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_count.h"
#include "batcher/engine.h"
#include "batcher/list_maker.h"
#include "batcher/scheduler/scheduler.h"
#include "beam/constraint_cache.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "request/request.h"
#include "tests/batcher/generate_all.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/tokenizer/tokenizer.h"
#include "trace/trace.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

// Another constraint whose lists all take long.
class SlowLists final : public Constraint {
 public:
  //   num_in_step  counts lists that are made where none may be
  SlowLists(std::shared_ptr<const Constraint> of, const bool* may_list,
            int* num_in_step)
      : of_(std::move(of)), may_list_(may_list), num_in_step_(num_in_step) {}

  State start() const override { return of_->start(); }
  State Advance(State state, TokenId token) const override {
    return of_->Advance(state, token);
  }
  Legal LegalTokens(State state, int32_t room) const override {
    const bool is_new = listed_.insert({state, room}).second;
    if (is_new && !*may_list_) ++*num_in_step_;
    return of_->LegalTokens(state, room);
  }
  bool IsListed(State state, int32_t room) const override {
    return listed_.contains({state, room});
  }
  bool TryList(State, int32_t, int64_t) const override { return false; }
  bool accepts(State state, int32_t room) const override {
    return of_->accepts(state, room);
  }
  bool ends(State state, int32_t room) const override {
    return of_->ends(state, room);
  }
  int64_t MaxLegal(int64_t n) const override { return of_->MaxLegal(n); }
  int64_t MaxLast(int64_t n) const override { return of_->MaxLast(n); }
  std::optional<ConstraintTables> tables() const override {
    return of_->tables();
  }

 private:
  const std::shared_ptr<const Constraint> of_;
  const bool* const may_list_;
  int* const num_in_step_;
  mutable std::set<std::pair<State, int32_t>> listed_;
};

class ListWaitsTest : public ::testing::Test {
 protected:
  ListWaitsTest() {
    options_.vocab_size = 40;
    options_.eos_boost = 1;
    options_.has_shareable_pages = true;
    auto tokenizer =
        Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    CHECK(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
  }

  // Requests of every kind, some of them constrained.
  std::vector<Request> SomeRequests(uint32_t seed,
                                    const ModelDescription& model) {
    std::mt19937 random(seed);
    std::vector<Request> requests;
    for (int i = 0; i < 12; ++i) {
      Request request = RandomRequest(random, model);
      GenerationParams& params = request.params;
      if (!params.allowed_sequences && !params.allowed_token_ids &&
          !params.forced_bos_token_id && params.forced_eos_token_id.empty() &&
          random() % 2 == 0) {
        params.constraint = ConstraintParams{};
        params.constraint->regex = "([\\x01-\\x08]{1,3}\\x09?){2,}";
        params.max_new_tokens = 6 + random() % 6;
        params.min_new_tokens = 0;
        params.no_repeat_ngram_size = 0;
        params.bad_words_ids = {};
        params.suppress_tokens = {};
        if (params.do_sample && CanSpeculate(params)) {
          params.speculate = {.method = SpeculationMethod::kNgram,
                              .num_tokens = 3,
                              .mode = SpeculationMode::kCoupled,
                              .always_drafts = true};
        }
        EXPECT_OK(ValidateRequest(model, &request));
      }
      requests.push_back(std::move(request));
    }
    return requests;
  }

  // The results of requests that run together. Lists are made at random
  // moments, by `random`; null: by the scheduler. A request that `cancelled`
  // names is cancelled at a random step.
  std::vector<absl::StatusOr<Result>> Run(const ToyModelOptions& options,
                                          const std::vector<Request>& requests,
                                          std::mt19937* random,
                                          int cancelled = -1) {
    ToyModel model(options);
    ModelDescription description = model.description();
    description.has_token_masks = has_token_masks_;
    ConstraintCache constraints(tokenizer_, description);
    Scheduler scheduler(
        description,
        {.max_step_tokens = 60, .validate_steps = true, .trace = trace_});
    std::deque<ListWork> works;
    bool may_list = true;
    if (random != nullptr) {
      scheduler.MakeListsBy(
          [&](ListWork work) { works.push_back(std::move(work)); });
    }
    std::vector<absl::StatusOr<Result>> results(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      auto constraint = *constraints.Get(requests[i]);
      if (constraint != nullptr && random != nullptr) {
        constraint = std::make_shared<SlowLists>(std::move(constraint),
                                                 &may_list, &num_in_step_);
      }
      scheduler.Submit(RequestId{static_cast<int64_t>(i)},
                       PreparedRequest(requests[i], tokenizer_, &description,
                                       std::move(constraint)),
                       [&result = results[i]](absl::StatusOr<Result> answer) {
                         result = std::move(answer);
                       });
    }
    may_list = false;
    const int cancel_at = random != nullptr ? (*random)() % 12 : 0;
    PlanRunner runner(&model);
    for (int step = 0;; ++step) {
      if (cancelled >= 0 && step == cancel_at) {
        scheduler.Cancel(RequestId{cancelled}, absl::CancelledError("stop"));
      }
      StepPlan plan = scheduler.Plan();
      if (!plan.is_noop()) {
        num_steps_beside_ += works.empty() || plan.empty() ? 0 : 1;
        scheduler.Advance(runner.Run(std::move(plan)));
        // The report of a wait that is over ends no other one.
        if (!works.empty()) scheduler.OnListed(works.back().request, {});
        if (works.empty() || (*random)() % 3 != 0) continue;
      }
      if (works.empty()) break;
      const ListWork work = std::move(works.front());
      works.pop_front();
      may_list = true;
      for (const ConstraintPlace& place : work.places) {
        work.constraint->LegalTokens(place.state, place.room);
      }
      may_list = false;
      scheduler.OnListed(work.request, work.is_awaited);
    }
    num_waits_ += scheduler.stats().num_list_waits;
    num_preemptions_ += scheduler.stats().num_preemptions;
    ExpectNothingHeld(scheduler);
    return results;
  }

  ToyModelOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool has_token_masks_ = false;  // the executor makes masks
  std::shared_ptr<TraceSink> trace_;
  int64_t num_waits_ = 0;
  int64_t num_steps_beside_ = 0;  // while some group awaits its lists
  int64_t num_preemptions_ = 0;
  int num_in_step_ = 0;
};

TEST_F(ListWaitsTest, ResultsAreThoseWithoutWaits) {
  for (const int num_pages : {400, 30}) {  // few: some are preempted
    options_.num_pages = num_pages;
    for (int seed = 0; seed < Cases(40, 12); ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      const std::vector<Request> requests =
          SomeRequests(seed, ToyModel(options_).description());
      const int cancelled = seed % 3 == 0 ? seed % 12 : -1;
      const auto late = Run(options_, requests, &random, cancelled);
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(i);
        const auto alone = Run(options_, {requests[i]}, nullptr);
        if (static_cast<int>(i) == cancelled && !late[i].ok()) {
          EXPECT_EQ(late[i].status(), absl::CancelledError("stop"));
          continue;
        }
        EXPECT_EQ(late[i].status(), alone[0].status());
        if (!late[i].ok() || !alone[0].ok()) continue;
        EXPECT_TRUE(SameHypotheses(*late[i], *alone[0]));
      }
    }
    // One that was preempted may resume before its lists are made.
    if (num_pages == 400) {
      EXPECT_EQ(num_in_step_, 0);
    }
  }
  EXPECT_GT(num_waits_, 50);
  EXPECT_GT(num_steps_beside_, 50);
  EXPECT_GT(num_preemptions_, 0);
}

// With masks of the executor, only searches that count candidates by lists
// await them, and traced groups: their events have the numbers of legal tokens.
TEST_F(ListWaitsTest, WhatNeedsNoListsAwaitsNone) {
  struct NoTrace final : TraceSink {
    void On(const TraceEvent&) override {}
  };
  has_token_masks_ = true;
  const auto num_waits = [&](int num_beams, bool is_stochastic) {
    Request request = {{1, 2, 3}, {}};
    GenerationParams& params = request.params;
    params.num_beams = num_beams;
    params.do_sample = num_beams == 1;
    params.stochastic = is_stochastic;
    params.seed = 1;
    params.max_new_tokens = 8;
    params.constraint = ConstraintParams{};
    params.constraint->regex = "[\\x01-\\x09]{8,}";
    EXPECT_OK(ValidateRequest(ToyModel(options_).description(), &request));
    num_waits_ = 0;
    std::mt19937 random(1);
    EXPECT_OK(Run(options_, {request}, &random)[0]);
    return num_waits_;
  };
  EXPECT_EQ(num_waits(/*num_beams=*/1, /*is_stochastic=*/false), 0);
  EXPECT_EQ(num_waits(/*num_beams=*/2, /*is_stochastic=*/false), 0);
  EXPECT_GT(num_waits(/*num_beams=*/2, /*is_stochastic=*/true), 0);
  trace_ = std::make_shared<NoTrace>();
  EXPECT_GT(num_waits(/*num_beams=*/1, /*is_stochastic=*/false), 0);
  EXPECT_GT(num_waits(/*num_beams=*/2, /*is_stochastic=*/false), 0);
}

TEST(ListMakerTest, GroupsTakeTurnsAndWhatIsNotAwaitedIsDropped) {
  std::vector<int64_t> order;
  const auto awaited = std::make_shared<char>();
  std::promise<void> done;
  // Lists of 10 are made after the others were given.
  struct Gate {
    std::promise<void> open;
    std::shared_future<void> opened = open.get_future().share();
  } gate;
  class Lists final : public Constraint {
   public:
    Lists(int64_t id, std::vector<int64_t>* order,
          std::shared_future<void> opened)
        : id_(id), order_(order), opened_(std::move(opened)) {}
    State start() const override { return 0; }
    State Advance(State, TokenId) const override { return kNone; }
    Legal LegalTokens(State, int32_t) const override {
      opened_.wait();
      order_->push_back(id_);
      return {};
    }
    bool accepts(State, int32_t) const override { return false; }
    bool ends(State, int32_t) const override { return false; }
    int64_t MaxLegal(int64_t) const override { return 0; }
    int64_t MaxLast(int64_t) const override { return 0; }

   private:
    const int64_t id_;
    std::vector<int64_t>* const order_;
    const std::shared_future<void> opened_;
  };
  int num_reports = 0;
  ListMaker maker(
      [&](RequestId request, const std::weak_ptr<const void>& is_awaited) {
        EXPECT_EQ(is_awaited.lock(), request.value == 30 ? nullptr : awaited);
        order.push_back(-request.value);
        if (++num_reports == 3) done.set_value();
      });
  const auto work = [&](int64_t id, size_t count,
                        std::weak_ptr<const void> is_awaited) {
    return ListWork{
        .request = RequestId{id},
        .constraint = std::make_shared<Lists>(id, &order, gate.opened),
        .places = std::vector<ConstraintPlace>(count),
        .is_awaited = std::move(is_awaited)};
  };
  ASSERT_TRUE(maker.Make(work(10, 3, awaited)));
  ASSERT_TRUE(maker.Make(work(20, 2, awaited)));
  ASSERT_TRUE(maker.Make(work(30, 9, std::make_shared<char>())));
  gate.open.set_value();
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int64_t>{10, 20, -30, 10, 20, -20, 10, -10}));
}

// Texts of nearly all tokens, and what may follow a character depends on it, so
// a list takes longer than the strand gives it.
constexpr char kNested[] = "root ::= \"(\" root \")\" | ([^()a] [^()b])+";

class ListWaitsEngineTest : public ListWaitsTest {
 protected:
  ListWaitsEngineTest() {
    auto model =
        TransformerModel::Load(SourcePath("models/en-fr"),
                               {.kv_cache_bytes = int64_t{64} << 20}, threads_);
    CHECK(model.ok());
    model_ = *std::move(model);
  }

  std::vector<Request> Requests() {
    std::vector<Request> requests;
    for (int i = 0; i < 8; ++i) {
      Request request = {{1, 4, 502, 282, 283, 2707, 270, 5}, {}};
      GenerationParams& params = request.params;
      params.max_new_tokens = 12;
      if (i % 2 == 0) {
        params.constraint = ConstraintParams{};
        params.constraint->grammar = kNested;
      }
      if (i % 4 < 2) {
        params.num_beams = params.num_return_sequences = 1 + i / 2;
      } else {
        params.do_sample = true;
        params.seed = i;
        params.num_return_sequences = 3;
      }
      requests.push_back(std::move(request));
    }
    return requests;
  }

  const std::shared_ptr<ThreadPool> threads_ = MakePool(NumUsableCpus());
  std::unique_ptr<TransformerModel> model_;
};

TEST_F(ListWaitsEngineTest, TogetherIsAsAlone) {
  const std::vector<Request> requests = Requests();
  const auto together = GenerateAll(MakeExecutor(model_.get(), threads_),
                                    requests, {.tokenizer = tokenizer_});
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const auto alone = GenerateAll(MakeExecutor(model_.get(), threads_),
                                   {requests[i]}, {.tokenizer = tokenizer_});
    ASSERT_OK(together[i]);
    ASSERT_OK(alone[0]);
    EXPECT_TRUE(SameHypotheses(*together[i], *alone[0]));
  }
}

TEST_F(ListWaitsEngineTest, AnEngineThatEndsMeanwhileAnswersAll) {
  for (int after_us = 0; after_us < Cases(200'000, 40'000);
       after_us += 10'000) {
    boost::asio::io_context context(1);
    auto engine = std::make_unique<Engine>(
        MakeEngine(context.get_executor(), MakeExecutor(model_.get(), threads_),
                   {.tokenizer = tokenizer_}));
    std::vector<std::future<absl::StatusOr<Result>>> answers;
    for (const Request& request : Requests()) {
      answers.push_back(boost::asio::co_spawn(
          context, engine->Generate(request), boost::asio::use_future));
    }
    std::thread runs([&] { context.run(); });
    std::this_thread::sleep_for(std::chrono::microseconds(after_us));
    engine = nullptr;
    for (auto& answer : answers) {
      const absl::StatusOr<Result> result = answer.get();
      if (!result.ok()) {
        EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
      }
    }
    runs.join();
  }
}

TEST_F(ListWaitsEngineTest, SomeWait) {
  boost::asio::io_context context(1);
  Engine engine =
      MakeEngine(context.get_executor(), MakeExecutor(model_.get(), threads_),
                 {.tokenizer = tokenizer_});
  auto answer = boost::asio::co_spawn(context, engine.Generate(Requests()[0]),
                                      boost::asio::use_future);
  context.run();
  ASSERT_OK(answer.get());
  auto stats =
      boost::asio::co_spawn(context, engine.Stats(), boost::asio::use_future);
  context.restart();
  context.run();
  EXPECT_GT(stats.get().num_list_waits, 0);
}

}  // namespace
}  // namespace espalier
