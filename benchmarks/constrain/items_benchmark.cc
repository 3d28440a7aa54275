// Catalogues of items: 10^7 random items of 4 tokens of 13 bits.
//
//   items_benchmark
//
// Build sorts the items and makes the catalogue; it reports the bytes that this
// keeps for an item. Step is a step of 5,000 beams at the widest level, the
// second, where a beam has 1,130 legal tokens on average: legal tokens, and the
// best candidates among them, as an executor on the host selects (one thread,
// all logits ready). Unrestricted is the step of beams without a constraint,
// whose rows are read as a whole. Excluding prepares a request that excludes
// 10,000 items, the work outside the step that is in proportion to these.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "beam/strategy/beam_strategy.h"
#include "beam/strategy/selection_options.h"
#include "constrain/item_catalogue.h"
#include "constrain/item_constraint.h"
#include "executor/host/select_all.h"

namespace espalier {
namespace {

constexpr int kVocabSize = 1 << 13;
constexpr int kLength = 4;
constexpr int kNumItems = 10'000'000;
constexpr int kNumBeams = 5'000;

const TokenLists& Lists() {
  static const auto* const lists = [] {
    auto* made = new TokenLists;
    std::mt19937 random(1);
    for (int i = 0; i < kNumItems; ++i) {
      for (int j = 0; j < kLength; ++j) {
        made->tokens.push_back(static_cast<TokenId>(random() % kVocabSize));
      }
      made->EndList();
    }
    return made;
  }();
  return *lists;
}

std::shared_ptr<const ItemCatalogue> Items() {
  static const auto items = std::make_shared<const ItemCatalogue>(Lists());
  return items;
}

void Build(benchmark::State& state) {
  const TokenLists& lists = Lists();
  for (auto _ : state) benchmark::DoNotOptimize(ItemCatalogue(lists));
  state.counters["nodes"] = static_cast<double>(Items()->num_nodes());
  state.counters["bytes_per_item"] =
      static_cast<double>(Items()->num_bytes()) / kNumItems;
}
BENCHMARK(Build)->Unit(benchmark::kMillisecond);

void Excluding(benchmark::State& state) {
  TokenLists excluded;
  for (int i = 0; i < 10'000; ++i) {
    const auto item = Lists()[i * 997];
    excluded.tokens.insert(excluded.tokens.end(), item.begin(), item.end());
    excluded.EndList();
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(ItemConstraint(Items(), {.excluded = excluded}));
  }
}
BENCHMARK(Excluding)->Unit(benchmark::kMillisecond);

void Step(benchmark::State& state, bool restricted) {
  GenerationParams params;
  params.num_beams = kNumBeams;
  params.num_return_sequences = kNumBeams;
  params.max_new_tokens = kLength;
  params.eos_token_id.emplace();
  const auto constraint =
      restricted ? std::make_shared<const ItemConstraint>(Items()) : nullptr;
  BeamStrategy strategy(params, constraint);
  StepPlan plan;
  plan.selections.emplace_back().params =
      MakeSelectionParams(params, {}, constraint);
  std::vector<float> logits(size_t{kNumBeams} * kVocabSize);
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 3);
  for (float& value : logits) value = normal(random);
  ThreadPool pool;
  const auto select = [&] {
    PlanSelection& selection = plan.selections.Edit(0);
    strategy.DescribeSelection(&selection);
    return SelectAll(
        plan,
        std::span(logits).first(size_t{1} * selection.num_rows * kVocabSize),
        kVocabSize, pool);
  };
  CHECK(strategy.Advance(select()[0], nullptr).ok());
  for (auto _ : state) benchmark::DoNotOptimize(select());
}
BENCHMARK_CAPTURE(Step, Items, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Step, Unrestricted, false)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace espalier

BENCHMARK_MAIN();
