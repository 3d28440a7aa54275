// The trace of a constrained request has, for each live sequence and step, the
// state of its constraint and the number of legal tokens. They are those of the
// constraint itself, and tracing makes no list that the search does not need.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "beam/constraint_cache.h"
#include "kernels/logprobs/logprobs.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "trace/trace_json.h"
#include "trace/trace_tree.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

class AllEvents : public TraceSink {
 public:
  void On(const TraceEvent& event) override { events.push_back(event); }
  std::vector<TraceEvent> events;
};

// Another constraint. Counts its lists.
class CountedLists final : public Constraint {
 public:
  explicit CountedLists(std::shared_ptr<const Constraint> of)
      : of_(std::move(of)) {}

  State start() const override { return of_->start(); }
  State Advance(State state, TokenId token) const override {
    return of_->Advance(state, token);
  }
  Legal LegalTokens(State state, int32_t room) const override {
    listed.insert({state, room});
    return of_->LegalTokens(state, room);
  }
  bool accepts(State state, int32_t room) const override {
    return of_->accepts(state, room);
  }
  bool ends(State state, int32_t room) const override {
    return of_->ends(state, room);
  }
  int64_t MaxLegal(int64_t n) const override { return of_->MaxLegal(n); }
  int64_t MaxLast(int64_t n) const override { return of_->MaxLast(n); }

  mutable std::set<std::pair<State, int32_t>> listed;

 private:
  const std::shared_ptr<const Constraint> of_;
};

class ConstraintTraceTest : public ::testing::Test {
 protected:
  ConstraintTraceTest() {
    options_.vocab_size = 40;
    options_.num_tokens_read = 2;
    options_.eos_boost = 1;
    options_.has_shareable_pages = true;
    auto tokenizer =
        Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    CHECK(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
  }

  Request RequestOf(GenerationParams params) const {
    Request request{{1, 2, 3, 4, 5}, std::move(params)};
    request.params.max_new_tokens = request.params.speculate ? 40 : 9;
    EXPECT_OK(ValidateRequest(ToyModel(options_).description(), &request));
    return request;
  }

  struct Run {
    absl::StatusOr<Result> answer;
    std::vector<TraceEvent> events;
    std::shared_ptr<const CountedLists> constraint;
  };

  Run RunOne(const Request& request, bool is_traced, int plans_in_flight = 1) {
    ToyModel model(options_);
    const ModelDescription description = model.description();
    ConstraintCache constraints(tokenizer_, description);
    AllEvents trace;
    SchedulerOptions options;
    options.validate_steps = true;
    if (is_traced) options.trace = Unowned(&trace);
    Scheduler scheduler(description, options);
    Run run;
    run.constraint = std::make_shared<CountedLists>(*constraints.Get(request));
    scheduler.Submit(
        RequestId{0},
        PreparedRequest(request, tokenizer_, nullptr, run.constraint),
        [&run](absl::StatusOr<Result> result) {
          run.answer = std::move(result);
        });
    RunToEnd(
        scheduler, model, [](int) {}, plans_in_flight);
    run.events = std::move(trace.events);
    return run;
  }

  // Checks the rows of a trace against the constraint; returns their number.
  int CheckRows(const Request& request, const Run& run) {
    struct Place {
      Constraint::State state;
      int32_t room;
      std::vector<TokenId> tokens;
    };
    const Constraint& constraint = *run.constraint;
    std::map<int, Place> places = {
        {kTraceRoot,
         {constraint.start(),
          static_cast<int32_t>(*request.params.max_new_tokens),
          {}}}};
    std::set<int> told;      // nodes that have a row
    std::set<int> followed;  // nodes that candidates follow
    TraceTrees trees;
    for (const TraceEvent& event : run.events) {
      EXPECT_OK(trees.Add(event)) << WriteTraceLine(event);
      if (const auto* legal = std::get_if<TraceLegal>(&event)) {
        for (const TraceLegalRow& row : legal->rows) {
          told.insert(row.node);
          const Place& place = places.at(row.node);
          EXPECT_EQ(row.state, place.state);
          EXPECT_EQ(row.room, place.room);
          const std::span<const TokenId> tokens =
              constraint.LegalTokens(place.state, place.room).tokens;
          EXPECT_EQ(row.num_legal, std::ssize(tokens));
          if (!row.legal_log_mass) continue;
          std::vector<TokenId> text = request.prompt_tokens;
          text.insert(text.end(), place.tokens.begin(), place.tokens.end());
          std::vector<float> logits(options_.vocab_size);
          ToyLogits(options_, text, logits);
          EXPECT_NEAR(*row.legal_log_mass, reference::LogMassOf(logits, tokens),
                      1e-5);
        }
      }
      const auto* candidate = std::get_if<TraceCandidate>(&event);
      if (candidate == nullptr) continue;
      const Place& place = places.at(candidate->parent);
      followed.insert(candidate->parent);
      const Constraint::State next =
          constraint.Advance(place.state, candidate->token);
      EXPECT_NE(next, Constraint::kNone);
      std::vector<TokenId> tokens = place.tokens;
      tokens.push_back(candidate->token);
      if (next != Constraint::kNone && candidate->slot) {
        places[candidate->node] = {next, place.room - 1, std::move(tokens)};
      }
    }
    EXPECT_TRUE(std::ranges::includes(told, followed));
    const TraceTree& tree = trees.trees().front();
    for (const int node : told) {
      const bool has_mass = tree.LegalAfter(node)->legal_log_mass.has_value();
      EXPECT_TRUE(request.params.legal_log_mass || !has_mass);
      EXPECT_TRUE(!request.params.legal_log_mass || has_mass ||
                  !followed.contains(node));
    }
    if (request.params.speculate) return static_cast<int>(told.size());
    size_t num_live = 0;  // in all steps
    for (const TracePages& pages : tree.pages) num_live += pages.slots.size();
    EXPECT_EQ(told.size(), num_live);
    return static_cast<int>(told.size());
  }

  ToyModelOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

ConstraintParams Regex() {
  ConstraintParams constraint;
  constraint.regex = "([\\x01-\\x08]{1,3}\\x09?){2,}";
  return constraint;
}

ConstraintParams Nested() {
  ConstraintParams constraint;
  constraint.grammar = "root ::= \"\\x01\" root \"\\x02\" | [\\x03-\\x07]{1,2}";
  return constraint;
}

std::vector<GenerationParams> AllKinds() {
  std::vector<GenerationParams> kinds;
  for (const ConstraintParams& constraint : {Regex(), Nested()}) {
    GenerationParams beams;
    beams.constraint = constraint;
    beams.num_beams = 4;
    beams.num_return_sequences = 3;
    GenerationParams with_mass = beams;
    with_mass.logprobs = 1;
    with_mass.legal_log_mass = true;
    GenerationParams diverse = with_mass;
    diverse.num_beam_groups = 2;
    diverse.diversity_penalty = 0.5;
    GenerationParams stochastic = beams;
    stochastic.stochastic = true;
    stochastic.seed = 5;
    GenerationParams samples;
    samples.constraint = constraint;
    samples.do_sample = true;
    samples.seed = 3;
    samples.num_return_sequences = 3;
    GenerationParams drafting = samples;
    drafting.logprobs = 1;
    drafting.legal_log_mass = true;
    drafting.temperature = 0.1;
    drafting.ignore_eos = true;
    drafting.speculate = {.method = SpeculationMethod::kNgram,
                          .num_tokens = 3,
                          .always_drafts = true};
    kinds.insert(kinds.end(),
                 {beams, with_mass, diverse, stochastic, samples, drafting});
  }
  return kinds;
}

TEST_F(ConstraintTraceTest, RowsAreThoseOfTheConstraint) {
  int num_rows = 0;
  int64_t num_accepted = 0;
  for (uint32_t seed = 0; seed < Cases(20, 5); ++seed) {
    options_.seed = seed;
    for (const GenerationParams& params : AllKinds()) {
      for (const int plans_in_flight : {1, 2}) {
        const Request request = RequestOf(params);
        const Run run = RunOne(request, /*is_traced=*/true, plans_in_flight);
        ASSERT_OK(run.answer);
        num_accepted += run.answer->usage.num_accepted_tokens;
        num_rows += CheckRows(request, run);
      }
    }
  }
  EXPECT_GT(num_rows, Cases(20, 5) * 200);
  EXPECT_GT(num_accepted, Cases(20, 5));
}

TEST_F(ConstraintTraceTest, TracingNeedsNoFurtherLists) {
  for (const GenerationParams& params : AllKinds()) {
    const Request request = RequestOf(params);
    const Run traced = RunOne(request, /*is_traced=*/true);
    const Run silent = RunOne(request, /*is_traced=*/false);
    ASSERT_OK(traced.answer);
    ASSERT_OK(silent.answer);
    EXPECT_TRUE(SameHypotheses(*traced.answer, *silent.answer));
    EXPECT_EQ(traced.constraint->listed, silent.constraint->listed);
    EXPECT_FALSE(traced.constraint->listed.empty());
  }
}

TEST_F(ConstraintTraceTest, OtherRequestsHaveNone) {
  GenerationParams params;
  params.num_beams = 3;
  params.num_return_sequences = 3;
  ToyModel model(options_);
  AllEvents trace;
  Scheduler scheduler(model.description(), {.trace = Unowned(&trace)});
  scheduler.Submit(RequestId{0}, PreparedRequest(RequestOf(params)),
                   [](const auto& result) { EXPECT_OK(result); });
  RunToEnd(scheduler, model);
  EXPECT_GT(trace.events.size(), 5);
  for (const TraceEvent& event : trace.events) {
    EXPECT_FALSE(std::holds_alternative<TraceLegal>(event));
  }
}

}  // namespace
}  // namespace espalier
