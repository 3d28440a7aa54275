// Streamed text: cost of a token that is fed to a stream, and of the candidates
// of a wide beam group in a step. items_per_second counts tokens.
//
//   bin/text_stream_benchmark
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/source_tree.h"
#include "text/text_stream.h"

namespace espalier {
namespace {

const std::string kModel = SourcePath("models/en-fr/tokenizer.model");

const Tokenizer& EnFr() {
  static const auto tokenizer = Tokenizer::Load(kModel);
  CHECK(tokenizer.ok()) << tokenizer.status().ToString();
  return **tokenizer;
}

// Words of several pieces, accents, and characters that take byte pieces.
std::vector<TokenId> SomeTokens() {
  const auto tokens = EnFr().Encode(
      "Tu n'aurais pas dû m'en parler hier, parce que je n'en savais rien. "
      "L'extraterrestre a mangé trois crêpes au sucre 漢字 🎈 avant de repartir "
      "vers sa planète; personne ne l'a cru, sauf la boulangère.");
  CHECK(tokens.ok()) << tokens.status().ToString();
  return *tokens;
}

// Four stops with common letters, none of which is in the text.
StopStrings Stops(bool with_stops) {
  if (!with_stops) return {};
  const auto stops =
      StopStrings::Create({"\n\n", " personnellement", "parle!", "rien du"});
  CHECK(stops.ok()) << stops.status().ToString();
  return *stops;
}

void FeedText(benchmark::State& state) {
  const StopStrings stops = Stops(state.range(0) != 0);
  const std::vector<TokenId> tokens = SomeTokens();
  for (auto _ : state) {
    TextStream stream(EnFr(), stops);
    for (const TokenId token : tokens) {
      benchmark::DoNotOptimize(stream.Feed(token));
    }
    benchmark::DoNotOptimize(stream.Finish());
  }
  state.SetItemsProcessed(state.iterations() * tokens.size());
}
BENCHMARK(FeedText)->ArgName("stops")->Arg(0)->Arg(1);

// 1,000 beams at different places of the text, two candidates each: the
// parent's stream is copied, the candidate's token fed.
void FeedCandidates(benchmark::State& state) {
  constexpr int kNumBeams = 1000;
  const StopStrings stops = Stops(state.range(0) != 0);
  const std::vector<TokenId> tokens = SomeTokens();
  std::mt19937 random(1);
  std::vector<TextStream> parents;
  std::vector<TokenId> candidates;
  for (int i = 0; i < kNumBeams; ++i) {
    parents.emplace_back(EnFr(), stops);
    for (int length = random() % tokens.size(); length > 0; --length) {
      parents.back().Feed(tokens[random() % tokens.size()]);
    }
    candidates.push_back(tokens[random() % tokens.size()]);
    candidates.push_back(tokens[random() % tokens.size()]);
  }
  for (auto _ : state) {
    int num_stopped = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      TextStream child = parents[i / 2];
      benchmark::DoNotOptimize(child.Feed(candidates[i]));
      num_stopped += child.stopped();
    }
    benchmark::DoNotOptimize(num_stopped);
  }
  state.SetItemsProcessed(state.iterations() * candidates.size());
}
BENCHMARK(FeedCandidates)->ArgName("stops")->Arg(0)->Arg(1);

// Baseline without streams: decodes the whole text again for each token.
void DecodeAgain(benchmark::State& state) {
  const std::vector<TokenId> tokens = SomeTokens();
  for (auto _ : state) {
    for (size_t i = 1; i <= tokens.size(); ++i) {
      benchmark::DoNotOptimize(EnFr().Decode({tokens.data(), i}));
    }
  }
  state.SetItemsProcessed(state.iterations() * tokens.size());
}
BENCHMARK(DecodeAgain);

void MakeStops(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Stops(true));
}
BENCHMARK(MakeStops);

void LoadTokenizer(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(kModel));
}
BENCHMARK(LoadTokenizer)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace espalier
