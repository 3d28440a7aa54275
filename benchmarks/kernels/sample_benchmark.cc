// Sampling: cost of a draw compared with one selection pass over the same rows.
//
//   bin/sample_benchmark [vocab_size [num_rows]]
//
// Each line is a way to sample: microseconds of processor time per row, the
// median of rounds that alternate with rounds of SelectRow (m = 16, no edits),
// and the ratio of the two. Rows are contiguous, 32 MB of them by default, so
// most reads miss the second-level cache, as after a model's last layer.
// Sampling and selection run on one thread.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/wording.h"
#include "benchmarks/median.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/sample/sample.h"
#include "kernels/select/select.h"

namespace espalier {
namespace {

constexpr int kRounds = 15;

struct Rows {
  int vocab_size;
  int num_rows;
  std::vector<float> logits;

  std::span<const float> row(int i) const {
    return std::span(logits).subspan(size_t{1} * i * vocab_size, vocab_size);
  }
};

Rows NormalRows(int num_rows, int vocab_size, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> logit(0, deviation);
  Rows rows{vocab_size, num_rows, {}};
  rows.logits.resize(size_t{1} * num_rows * vocab_size);
  for (float& l : rows.logits) l = logit(random);
  return rows;
}

// Logits of `num_levels` values, evenly spread and evenly often: nothing but
// ties. Of one value, every token of a row is equal.
Rows TiedRows(int num_rows, int vocab_size, int num_levels) {
  std::mt19937 random(3);
  Rows rows{vocab_size, num_rows, {}};
  rows.logits.resize(size_t{1} * num_rows * vocab_size);
  for (float& l : rows.logits) {
    l = 1.5f - 0.25f * static_cast<float>(random() % num_levels);
  }
  return rows;
}

// Returns the edits after a prompt and a text of 256 tokens, most of them
// different.
std::vector<TokenEdit> Penalties(int vocab_size) {
  std::mt19937 random(2);
  std::vector<TokenEdit> edits;
  for (int i = 0; i < 256; ++i) {
    edits.push_back({.token = static_cast<TokenId>(random() % vocab_size),
                     .repeated = true,
                     .penalty = i % 2 == 0 ? 0.0f : 0.5f});
  }
  std::ranges::sort(edits, {}, &TokenEdit::token);
  const auto same = std::ranges::unique(edits, {}, &TokenEdit::token);
  edits.erase(same.begin(), same.end());
  return edits;
}

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

// Microseconds a row.
template <typename Body>
double TimeOfRound(const Rows& rows, const Body& body) {
  const double start = ProcessorSeconds();
  for (int i = 0; i < rows.num_rows; ++i) body(rows.row(i), i);
  return 1e6 * (ProcessorSeconds() - start) / rows.num_rows;
}

long long checksum = 0;  // so that nothing is left out

template <typename Body>
void Report(const char* name, const Rows& rows, const Body& body) {
  std::vector<double> select_times, times;
  for (int round = 0; round < kRounds; ++round) {
    select_times.push_back(
        TimeOfRound(rows, [](std::span<const float> row, int) {
          checksum += SelectRow(row, {.num_candidates = 16}).front().token;
        }));
    times.push_back(TimeOfRound(rows, body));
  }
  const double select = Median(select_times), time = Median(times);
  std::printf("%-44s %8.2f us %8.2f us %6.2f\n", name, select, time,
              time / select);
}

void ReportDraw(const char* name, const Rows& rows, DrawOptions options) {
  Report(name, rows, [&](std::span<const float> row, int i) {
    options.sample = i;
    checksum += DrawRow(row, options).token;
  });
}

void ReportGumbelTopK(const char* name, const Rows& rows,
                      GumbelTopKOptions options) {
  Report(name, rows, [&](std::span<const float> row, int i) {
    options.draw.sample = i;
    checksum += GumbelTopK(row, options).front().token;
  });
}

void PrintHeader(const std::string& kind) {
  std::printf("%-44s %11s %11s %6s\n", kind.c_str(), "select", "this", "ratio");
}

// The filters that look for a cut.
void ReportCuts(const std::string& kind, const Rows& rows) {
  PrintHeader(kind);
  ReportDraw("top_k 5000", rows, {.params = {.top_k = 5000}});
  ReportDraw("top_p 0.1", rows, {.params = {.top_p = 0.1f}});
  ReportDraw("top_p 0.67", rows, {.params = {.top_p = 0.67f}});
  ReportDraw("typical_p 0.9", rows, {.params = {.typical_p = 0.9f}});
}

void ReportAll(const std::string& kind, const Rows& rows) {
  PrintHeader(kind);
  const std::vector<TokenEdit> edits = Penalties(rows.vocab_size);
  Report("SelectRow, m = 16, 256 penalties", rows,
         [&](std::span<const float> row, int) {
           const RowOptions options = {.domain = ScoreDomain::kLogits,
                                       .num_candidates = 16,
                                       .repetition_penalty = 1.2f,
                                       .edits = edits};
           checksum += SelectRow(row, options).front().token;
         });
  const SamplingParams full = {
      .temperature = 0.8f, .min_p = 0.02f, .top_k = 50, .top_p = 0.9f};
  ReportDraw("greedy", rows, {.params = {.temperature = 0}});
  ReportDraw("nothing but the draw", rows, {});
  ReportDraw("temperature 0.8", rows, {.params = {.temperature = 0.8f}});
  ReportDraw("temperature, min_p, top_k, top_p", rows, {.params = full});
  ReportDraw("the same, 256 penalties", rows,
             {.params = full, .repetition_penalty = 1.2f, .edits = edits});
  ReportDraw("min_p 0.1", rows, {.params = {.min_p = 0.1f}});
  ReportDraw("top_k 5000", rows, {.params = {.top_k = 5000}});
  ReportDraw("top_p 0.9", rows, {.params = {.top_p = 0.9f}});
  ReportDraw("top_p 0.9, temperature 0.8", rows,
             {.params = {.temperature = 0.8f, .top_p = 0.9f}});
  ReportDraw("typical_p 0.9", rows, {.params = {.typical_p = 0.9f}});
  ReportDraw("top_p 0.9, typical_p 0.9", rows,
             {.params = {.top_p = 0.9f, .typical_p = 0.9f}});
  ReportGumbelTopK("gumbel top-k, m = 16, log-probabilities", rows,
                   {.num_candidates = 16});
  ReportGumbelTopK("gumbel top-k, m = 16, logits, top_k 50", rows,
                   {.domain = ScoreDomain::kLogits,
                    .num_candidates = 16,
                    .draw = {.params = {.top_k = 50}}});
}

void Main(int vocab_size, int num_rows) {
  std::printf("%d rows of %d logits\n", num_rows, vocab_size);
  ReportAll("normal, deviation 3",
            NormalRows(num_rows, vocab_size, /*deviation=*/3));
  ReportAll("flat: normal, deviation 0.1",
            NormalRows(num_rows, vocab_size, /*deviation=*/0.1f));
  for (const int num_levels : {1, 2, 16}) {
    ReportCuts(Concat("ties: ", Pluralize(num_levels, "value")),
               TiedRows(num_rows, vocab_size, num_levels));
  }
  std::printf("checksum %lld\n", checksum);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::Main(argc > 1 ? std::atoi(argv[1]) : 32000,
                 argc > 2 ? std::atoi(argv[2]) : 256);
}
