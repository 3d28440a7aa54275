// Drafters from history: cost per accepted token, per draft and per fork, by
// the length of the text; and the worth of drafts in texts of this repository,
// read as if a model had written them: each step drafts, accepts the tokens
// that the text continues with, and takes one token more.
//
//   bin/drafter_benchmark
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "speculate/drafter.h"
#include "speculate/speculation_figures.h"
#include "tests/source_tree.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

std::vector<TokenId> TokensOf(const std::string& path) {
  static const auto tokenizer =
      Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
  CHECK(tokenizer.ok()) << tokenizer.status().ToString();
  const auto text = ReadFile(SourcePath(path), 1 << 24);
  CHECK(text.ok()) << text.status().ToString();
  const auto tokens = (*tokenizer)->Encode(*text);
  CHECK(tokens.ok()) << tokens.status().ToString();
  return *tokens;
}

// The glossary as often as it takes.
std::vector<TokenId> TextOf(size_t num_tokens) {
  static const std::vector<TokenId> once = TokensOf("docs/glossary.md");
  std::vector<TokenId> text;
  for (size_t i = 0; i < num_tokens; ++i) text.push_back(once[i % once.size()]);
  return text;
}

constexpr int kNgram = static_cast<int>(SpeculationMethod::kNgram);
constexpr int kSuffix = static_cast<int>(SpeculationMethod::kSuffix);

std::unique_ptr<Drafter> DrafterOf(benchmark::State& state) {
  const auto method = static_cast<SpeculationMethod>(state.range(0));
  state.SetLabel(std::string(NameOf(method)));
  return MakeDrafter({.method = method});
}

void BM_Append(benchmark::State& state) {
  const std::vector<TokenId> text = TextOf(state.range(1));
  for (auto _ : state) {
    const std::unique_ptr<Drafter> drafter = DrafterOf(state);
    drafter->Append(text);
  }
  state.SetItemsProcessed(state.iterations() * state.range(1));
}
BENCHMARK(BM_Append)->ArgsProduct({{kNgram, kSuffix}, {1'000, 100'000}});

void BM_Draft(benchmark::State& state) {
  const std::unique_ptr<Drafter> drafter = DrafterOf(state);
  drafter->Append(TextOf(state.range(1)));
  std::vector<TokenId> draft;
  for (auto _ : state) {
    drafter->Draft(5, &draft);
    benchmark::DoNotOptimize(draft.data());
  }
}
BENCHMARK(BM_Draft)->ArgsProduct({{kNgram, kSuffix}, {1'000, 100'000}});

// As for a beam that forks: the child's first token copies the data that it
// changes.
void BM_ForkAndAppend(benchmark::State& state) {
  const std::unique_ptr<Drafter> drafter = DrafterOf(state);
  const std::vector<TokenId> text = TextOf(state.range(1) + 1);
  drafter->Append({text.data(), text.size() - 1});
  for (auto _ : state) drafter->Fork()->Append({&text.back(), 1});
}
BENCHMARK(BM_ForkAndAppend)->ArgsProduct({{kNgram, kSuffix}, {1'000, 100'000}});

void BM_Worth(benchmark::State& state, const std::string& path) {
  const std::vector<TokenId> text = TokensOf(path);
  SpeculationFigures figures;
  for (auto _ : state) {
    figures = {};
    const std::unique_ptr<Drafter> drafter = DrafterOf(state);
    std::vector<TokenId> draft;
    for (size_t i = 0; i < text.size();) {
      drafter->Draft(5, &draft);
      draft.resize(std::min(draft.size(), text.size() - i));
      const auto rejected =
          std::mismatch(draft.begin(), draft.end(), text.begin() + i).first;
      const auto num_accepted = static_cast<int>(rejected - draft.begin());
      const size_t end = std::min(i + num_accepted + 1, text.size());
      figures.Record(static_cast<int>(draft.size()), num_accepted,
                     static_cast<int>(end - i));
      drafter->Append({text.data() + i, end - i});
      i = end;
    }
  }
  state.counters["tokens_per_step"] = figures.TokensPerStep();
  state.counters["acceptance"] = figures.AcceptanceRate();
}
BENCHMARK_CAPTURE(BM_Worth, prose, "docs/groups.md")->Arg(kNgram)->Arg(kSuffix);
BENCHMARK_CAPTURE(BM_Worth, tables, "docs/glossary.md")
    ->Arg(kNgram)
    ->Arg(kSuffix);
BENCHMARK_CAPTURE(BM_Worth, code, "request/param_fields.cc")
    ->Arg(kNgram)
    ->Arg(kSuffix);

}  // namespace
}  // namespace espalier
