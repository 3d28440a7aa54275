// Cost of allowed_sequences outside the model: 100,000 sequences of 4 tokens
// over a vocabulary of 6,000 (that of models/en-fr) and 256 beams.
//
//   allowed_sequences_benchmark
//
// Prepare is the caller's part before it submits a request: building the trie
// (Build) and destroying the lists. Admit is the part on the strand, where all
// other requests wait: taking the request, planning its first step, and
// destroying it. It was 2 us beside 40 ms. Search is a whole request of 4 steps
// as an executor on the host selects (executor/host/select_all.h), on one
// thread, with all its logits ready: the time outside the model. Unrestricted
// is the same search without the trie.
#include <benchmark/benchmark.h>

#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "batcher/scheduler/scheduler.h"
#include "beam/prepared_request.h"
#include "beam/strategy/allowed_sequences.h"
#include "beam/strategy/beam_strategy.h"
#include "beam/strategy/selection_options.h"
#include "executor/host/select_all.h"

namespace espalier {
namespace {

constexpr int kVocabSize = 6000;
constexpr int kNumSequences = 100000;
constexpr int kLength = 4;
constexpr int kNumBeams = 256;

GenerationParams Params() {
  std::mt19937 random(1);
  GenerationParams params;
  params.num_beams = kNumBeams;
  params.num_return_sequences = kNumBeams;
  params.max_new_tokens = kLength;
  params.eos_token_id.emplace();
  std::vector<std::vector<int64_t>> sequences(kNumSequences);
  for (std::vector<int64_t>& sequence : sequences) {
    for (int i = 0; i < kLength; ++i) sequence.push_back(random() % kVocabSize);
  }
  params.allowed_sequences = std::move(sequences);
  return params;
}

// Logits of every beam, normally distributed.
const std::vector<float>& Logits() {
  static const auto* const logits = [] {
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0, 3);
    auto* values = new std::vector<float>(kNumBeams * kVocabSize);
    for (float& value : *values) value = normal(random);
    return values;
  }();
  return *logits;
}

void Build(benchmark::State& state) {
  GenerationParams params = Params();
  for (auto _ : state) {
    params.allowed_sequences->Edit();  // forgets the last trie
    benchmark::DoNotOptimize(AllowedSequencesOf(params));
  }
  state.counters["nodes"] =
      static_cast<double>(AllowedSequencesOf(params)->items().num_nodes());
}
BENCHMARK(Build)->Unit(benchmark::kMillisecond);

Request MakeRequest() {
  Request request{{1}, Params()};
  request.params.logit_bias = {{3, 0.5}};
  return request;
}

void Prepare(benchmark::State& state) {
  const Request request = MakeRequest();
  for (auto _ : state) {
    state.PauseTiming();
    Request copy = request;
    state.ResumeTiming();
    benchmark::DoNotOptimize(PreparedRequest(std::move(copy)));
  }
}
BENCHMARK(Prepare)->Unit(benchmark::kMillisecond);

void Admit(benchmark::State& state) {
  Scheduler scheduler(
      {.vocab_size = kVocabSize, .max_context = 100, .num_pages = 1000}, {});
  const absl::Status gone = absl::CancelledError("");
  int64_t id = 0;
  for (auto _ : state) {
    state.PauseTiming();
    PreparedRequest prepared(MakeRequest());
    state.ResumeTiming();
    scheduler.Submit(RequestId{id}, std::move(prepared), [](const auto&) {});
    benchmark::DoNotOptimize(scheduler.Plan());
    scheduler.Cancel(RequestId{id++}, gone);
    scheduler.Advance(gone);
  }
}
BENCHMARK(Admit)->Unit(benchmark::kMillisecond);

// Runs the request to its end; returns how many candidates there were.
int64_t Run(const GenerationParams& params,
            const std::shared_ptr<const ItemConstraint>& allowed,
            ThreadPool& pool) {
  BeamStrategy strategy(params, allowed);
  StepPlan plan;
  plan.selections.emplace_back().params =
      MakeSelectionParams(params, {}, allowed);
  int64_t num_candidates = 0;
  while (!strategy.done()) {
    PlanSelection& selection = plan.selections.Edit(0);
    strategy.DescribeSelection(&selection);
    const auto logits =
        std::span(Logits()).first(size_t{1} * selection.num_rows * kVocabSize);
    const std::vector<SelectionResult> results =
        SelectAll(plan, logits, kVocabSize, pool);
    num_candidates += results[0].candidates.size();
    CHECK(strategy.Advance(results[0], nullptr).ok());
  }
  return num_candidates;
}

void Search(benchmark::State& state, bool restricted) {
  GenerationParams params = Params();
  if (!restricted) params.allowed_sequences.reset();
  const auto allowed = AllowedSequencesOf(params);
  ThreadPool pool;
  int64_t num_candidates = 0;
  for (auto _ : state) num_candidates += Run(params, allowed, pool);
  state.counters["steps"] = benchmark::Counter(
      kLength, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["candidates_per_step"] =
      static_cast<double>(num_candidates) /
      static_cast<double>(kLength * state.iterations());
}
BENCHMARK_CAPTURE(Search, Allowed, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Search, Unrestricted, false)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace espalier

BENCHMARK_MAIN();
