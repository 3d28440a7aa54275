// Selection: cost per row, after the model has computed its logits.
//
//   bin/select_benchmark --benchmark_filter=SelectRow
//
// The row is read once, so bytes_per_second is 4 * vocab_size over the time;
// it compares with the speed of the cache level that the row fits in.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/logits/edited_logits.h"
#include "kernels/select/merge_candidates.h"
#include "kernels/select/select.h"

namespace espalier {
namespace {

std::vector<float> NormalLogits(int vocab_size, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> logit(0, 3);
  std::vector<float> logits(vocab_size);
  for (float& l : logits) l = logit(random);
  return logits;
}

// Every 64th token is penalised: a long history.
std::vector<TokenEdit> SomeEdits(int vocab_size) {
  std::vector<TokenEdit> edits;
  for (TokenId t = 7; t < vocab_size; t += 64) {
    edits.push_back({.token = t, .repeated = true});
  }
  return edits;
}

template <std::vector<TokenScore> (*kSelect)(std::span<const float>,
                                             const RowOptions&)>
void BenchmarkRow(benchmark::State& state, bool with_edits) {
  const int vocab_size = static_cast<int>(state.range(0));
  const std::vector<float> logits = NormalLogits(vocab_size, 1);
  const std::vector<TokenEdit> edits = SomeEdits(vocab_size);
  RowOptions options;
  options.num_candidates = static_cast<int>(state.range(1));
  options.repetition_penalty = 1.2f;
  if (with_edits) options.edits = edits;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kSelect(logits, options));
  }
  state.SetBytesProcessed(state.iterations() * vocab_size * sizeof(float));
}

void SelectRowFast(benchmark::State& state) {
  BenchmarkRow<SelectRow>(state, false);
}
void SelectRowEdited(benchmark::State& state) {
  BenchmarkRow<SelectRow>(state, true);
}
void SelectRowTwin(benchmark::State& state) {
  BenchmarkRow<reference::SelectRow>(state, false);
}

void RowSizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"vocab", "m"})
      ->ArgsProduct({{6000, 32000, 128256}, {8, 16, 64}})
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK(SelectRowFast)->Apply(RowSizes);
BENCHMARK(SelectRowFast)
    ->ArgNames({"vocab", "m"})
    ->Args({128256, 1})
    ->Args({128256, 1000})
    ->Args({128256, 10000})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(SelectRowEdited)->Apply(RowSizes);
BENCHMARK(SelectRowTwin)->Apply(RowSizes);

// Whisper's rows and bans: of symbols, and by the rule of timestamps after
// text.
void SelectRowTimed(benchmark::State& state) {
  constexpr int kVocabSize = 51865;
  const std::vector<float> logits = NormalLogits(kVocabSize, 1);
  const TimestampRule rule = {
      .first_time = 50364, .end = 50257, .no_timestamps = 50363};
  std::vector<TokenEdit> bans;
  for (TokenId t = 0; t < 88; ++t) {
    bans.push_back({.token = 570 * t, .banned = true});
  }
  const bool has_rule = state.range(0) != 0;
  std::vector<float> edited(kVocabSize);
  RowOptions options = {.num_candidates = 10};
  if (!has_rule) options.edits = bans;
  for (auto _ : state) {
    if (has_rule) {
      WriteEditedLogits(
          logits,
          {.edits = bans,
           .rule = &rule,
           .state = {.last = TimestampState::kText, .last_time = 50400}},
          edited);
    }
    benchmark::DoNotOptimize(SelectRow(has_rule ? edited : logits, options));
  }
}
BENCHMARK(SelectRowTimed)
    ->ArgName("rule")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMicrosecond);

// A group of `beams` rows that each offer m = 2 * beams tokens.
template <std::vector<Candidate> (*kMerge)(
    std::span<const std::vector<TokenScore>>, std::span<const float>, int)>
void BenchmarkMerge(benchmark::State& state) {
  const int num_beams = static_cast<int>(state.range(0));
  const std::vector<float> cum_log_probs = NormalLogits(num_beams, 2);
  RowOptions options;
  options.num_candidates = 2 * num_beams;
  std::vector<std::vector<TokenScore>> rows;
  for (int beam = 0; beam < num_beams; ++beam) {
    rows.push_back(SelectRow(NormalLogits(6000, beam), options));
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        kMerge(rows, cum_log_probs, options.num_candidates));
  }
}
BENCHMARK(BenchmarkMerge<MergeCandidates>)
    ->Name("MergeFast")
    ->Arg(4)
    ->Arg(64)
    ->Arg(1000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(BenchmarkMerge<reference::MergeCandidates>)
    ->Name("MergeTwin")
    ->Arg(4)
    ->Arg(64)
    ->Arg(1000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace espalier
