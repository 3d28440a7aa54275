// Cost of scheduling, with a model that costs nothing.
//
//   build/release/bin/scheduler_benchmark
//
// BM_Step: one plan and its result, with all requests and beams decoding and
// `waiting` more requests in the queue. BM_Fork: fork of a page table of 32
// pages; BM_ForkAndDrop: fork and destruction. BM_Lookup: a prompt of 32 pages
// in a prefix tree of many.
#include <benchmark/benchmark.h>

#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "batcher/engine_stats.h"
#include "batcher/prometheus_text.h"
#include "batcher/scheduler/request_times.h"
#include "benchmarks/batcher/scheduler_load.h"
#include "pages/page_table.h"
#include "pages/prefix_tree.h"

namespace espalier {
namespace {

void BM_Step(benchmark::State& state) {
  SchedulerLoad load({.num_requests = static_cast<int>(state.range(0)),
                      .num_beams = static_cast<int>(state.range(1)),
                      .num_waiting = static_cast<int>(state.range(2))});
  for (auto _ : state) {
    state.SetIterationTime(std::chrono::duration<double>(load.Step()).count());
  }
}
BENCHMARK(BM_Step)
    ->ArgNames({"requests", "beams", "waiting"})
    ->Args({1, 1, 0})
    ->Args({256, 1, 0})
    ->Args({256, 1, 1000})
    ->Args({64, 4, 0})
    ->Args({4, 64, 0})
    ->Iterations(1000)
    ->Unit(benchmark::kMicrosecond)
    ->UseManualTime();

// A table of 32 pages.
class ParentTable {
 public:
  ParentTable() { CHECK(table_.Append(32 * 16, &copies_).ok()); }

  PageTable Fork() const { return table_.Fork(table_.num_tokens()); }

 private:
  PagePool pool_{64, 16};
  PageTable table_{&pool_};
  std::vector<PageCopy> copies_;
};

// A fork, of 64 that are timed together.
void BM_Fork(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  constexpr int kNumForks = 64;
  const ParentTable parent;
  std::vector<PageTable> children;
  children.reserve(kNumForks);
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kNumForks; ++i) children.push_back(parent.Fork());
    const std::chrono::duration<double> time = Clock::now() - begin;
    state.SetIterationTime(time.count() / kNumForks);
    children.clear();
  }
}
BENCHMARK(BM_Fork)->Iterations(2000)->UseManualTime();

// A beam that begins and is pruned at once.
void BM_ForkAndDrop(benchmark::State& state) {
  const ParentTable parent;
  for (auto _ : state) {
    PageTable child = parent.Fork();
    benchmark::DoNotOptimize(child);
  }
}
BENCHMARK(BM_ForkAndDrop);

// A prefix tree of 64 prompts of 32 pages, the first 16 of them in common.
class Prompts {
 public:
  Prompts() : pool_(64 * 32, 16), tree_(&pool_) {
    for (int i = 0; i < 64; ++i) {
      std::vector<TokenId>& prompt = prompts_.emplace_back();
      for (int t = 0; t < 32 * 16; ++t) {
        prompt.push_back(t < 16 * 16 ? t : 1000 * i + t);
      }
      Insert(prompt);
    }
  }

  size_t Find(int i) {
    return tree_.Find("", {}, {prompts_[i % prompts_.size()]}).pages.size();
  }

 private:
  void Insert(std::span<const TokenId> prompt) {
    PrefixTree::Cursor at;
    for (size_t first = 0; first < prompt.size(); first += 16) {
      at = tree_
               .Insert("", at, prompt.subspan(first, 16), *pool_.Allocate(),
                       PageState::kReady)
               ->cursor;
    }
  }

  PagePool pool_;
  PrefixTree tree_;
  std::vector<std::vector<TokenId>> prompts_;
};

void BM_Lookup(benchmark::State& state) {
  Prompts prompts;
  int i = 0;
  for (auto _ : state) CHECK_EQ(prompts.Find(i++), 32);
}
BENCHMARK(BM_Lookup);

// Cost of statistics in a step of 256 requests.
void BM_CountTokens(benchmark::State& state) {
  SchedulerStats stats;
  std::vector<RequestTimes> times(256);
  int64_t now = 0;
  for (auto _ : state) {
    now += 10'000'000;
    for (RequestTimes& request : times) request.OnToken(now, &stats);
  }
}
BENCHMARK(BM_CountTokens);

void BM_PrometheusText(benchmark::State& state) {
  const EngineStats stats;
  for (auto _ : state) benchmark::DoNotOptimize(PrometheusText(stats));
}
BENCHMARK(BM_PrometheusText)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace espalier

BENCHMARK_MAIN();
