// One decode step of models/en-fr: rows that feed a token each, at position
// 64 of sequences of their own; and a prompt of as many tokens in one row.
//
//   transformer_benchmark --benchmark_filter=Decode
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "model/transformer_model.h"
#include "tests/source_tree.h"

namespace espalier {
namespace {

constexpr int kPosition = 64;

struct Loaded {
  explicit Loaded(int num_threads) {
    auto loaded =
        TransformerModel::Load(SourcePath("models/en-fr"), {},
                               ThreadPool::Create(num_threads).value());
    if (!loaded.ok()) std::abort();
    model = *std::move(loaded);
  }
  std::unique_ptr<TransformerModel> model;
};

// Returns a plan of `num_rows` rows of `num_tokens` tokens each, with logits
// for the last token of each row.
StepPlan MakePlan(int num_rows, int num_tokens, int first_position) {
  StepPlan plan;
  const int num_pages = (first_position + num_tokens + 15) / 16;
  for (int r = 0; r < num_rows; ++r) {
    plan.rows.push_back({.sequence = SequenceId{r},
                         .first_token = r * num_tokens,
                         .num_tokens = num_tokens,
                         .first_position = first_position,
                         .num_logits = 1,
                         .first_logits = r});
    for (int i = 0; i < num_tokens; ++i) plan.tokens.push_back(10 + r + i);
    for (int i = 0; i < num_pages; ++i) {
      plan.page_indices.push_back(PageId{r * num_pages + i});
    }
    plan.page_indptr.push_back((r + 1) * num_pages);
  }
  plan.num_logits = num_rows;
  return plan;
}

void RunPlan(benchmark::State& state, const StepPlan& plan, int num_threads) {
  Loaded loaded(num_threads);
  std::vector<float> logits(size_t(plan.num_logits) *
                            loaded.model->description().vocab_size);
  for (auto _ : state) {
    if (!loaded.model->Forward(plan, logits).ok()) std::abort();
  }
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(plan.tokens.size()),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void Decode(benchmark::State& state) {
  RunPlan(state, MakePlan(static_cast<int>(state.range(0)), 1, kPosition),
          static_cast<int>(state.range(1)));
}
BENCHMARK(Decode)
    ->ArgNames({"rows", "threads"})
    ->ArgsProduct({{1, 2, 3, 5, 64, 256}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

void Prefill(benchmark::State& state) {
  RunPlan(state, MakePlan(1, static_cast<int>(state.range(0)), 0),
          static_cast<int>(state.range(1)));
}
BENCHMARK(Prefill)
    ->ArgNames({"tokens", "threads"})
    ->ArgsProduct({{32, 512}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
}  // namespace espalier
