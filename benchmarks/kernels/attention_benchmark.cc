// Attention on the CPU: encoders, prompts, decode steps, and beams that read
// one source.
//
//   attention_benchmark --benchmark_filter='Encoder.*threads:1'
//
// GFLOP/s counts a multiply-add as two, and scores and values of the positions
// that a query sees; the exponentials are not counted. GB/s counts the keys and
// values of each sequence once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
constexpr int kRowTokens = 8;

struct Case {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int num_rows = 0;
  int num_tokens = 0;     // each row's
  int num_positions = 0;  // that its last token sees
  bool sees_all = false;  // so does each token
  bool one_source = false;
};

std::vector<float> RandomFloats(size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(count);
  for (float& value : x) value = uniform(random);
  return x;
}

void Run(benchmark::State& state, const Case& c) {
  const auto pool =
      ThreadPool::Create(static_cast<int>(state.range(0))).value();
  const int num_sequences = c.one_source ? 1 : c.num_rows;
  const int num_pages = (c.num_positions + kPageSize - 1) / kPageSize;
  const size_t kv_size = size_t(num_sequences) * num_pages * kPageSize *
                         c.num_kv_heads * c.head_dim;
  std::vector<float> keys = RandomFloats(kv_size), values = keys;
  const KvLayer layer = {keys, values, kPageSize, c.num_kv_heads, c.head_dim};
  std::vector<std::vector<PageId>> pages(num_sequences);
  for (int i = 0; i < num_sequences * num_pages; ++i) {
    pages[i / num_pages].push_back(PageId{i});
  }
  std::vector<PagedRow> rows;
  for (int r = 0; r < c.num_rows; ++r) {
    // A forward pass divides rows, too.
    for (int i = 0; i < c.num_tokens; i += kRowTokens) {
      rows.push_back({.first_token = r * c.num_tokens + i,
                      .num_tokens = std::min(kRowTokens, c.num_tokens - i),
                      .first_position = c.num_positions - c.num_tokens + i,
                      .pages = pages[c.one_source ? 0 : r],
                      .num_keys = c.sees_all ? c.num_positions : 0});
    }
  }
  const size_t q_size = size_t(c.num_heads) * c.head_dim;
  const std::vector<float> q = RandomFloats(q_size * c.num_rows * c.num_tokens);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    Attention(rows, q.data(), static_cast<int>(q_size), c.num_heads, layer, out,
              *pool);
    benchmark::ClobberMemory();
  }
  double positions = double(c.num_rows) * c.num_tokens * c.num_positions;
  if (!c.sees_all) {
    positions -= double(c.num_rows) * c.num_tokens * (c.num_tokens - 1) / 2;
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(4e-9 * positions * static_cast<double>(q_size),
                         benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] =
      benchmark::Counter(8e-9 * static_cast<double>(kv_size),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void Threads(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("threads")->UseRealTime()->Arg(1)->Arg(2);
}

// The shapes of Whisper base and of its 5 beams.
BENCHMARK_CAPTURE(Run, Encoder, Case{8, 8, 64, 1, 1500, 1500, true})
    ->Apply(Threads);
BENCHMARK_CAPTURE(Run, BeamsOfASource, Case{8, 8, 64, 5, 1, 1500, true, true})
    ->Apply(Threads);
BENCHMARK_CAPTURE(Run, Prompt, Case{8, 8, 64, 1, 512, 512})->Apply(Threads);
BENCHMARK_CAPTURE(Run, PromptOfGroups, Case{32, 8, 128, 1, 512, 512})
    ->Apply(Threads);
BENCHMARK_CAPTURE(Run, Decode, Case{8, 8, 64, 4, 1, 512})->Apply(Threads);
BENCHMARK_CAPTURE(Run, DecodeOfOne, Case{8, 8, 64, 1, 1, 128})->Apply(Threads);
BENCHMARK_CAPTURE(Run, DecodeOfShort, Case{8, 8, 32, 16, 1, 24})
    ->Apply(Threads);
BENCHMARK_CAPTURE(Run, DecodeOfGroups, Case{32, 8, 128, 4, 1, 1024})
    ->Apply(Threads);

}  // namespace
}  // namespace espalier
