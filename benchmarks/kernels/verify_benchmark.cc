// Verification: what judging a draft costs against drawing from as many rows.
//
//   bin/verify_benchmark [vocab_size]
//
// Every line is a way to sample: microseconds of processor time, medians of
// rounds that alternate, on one thread. "draw" is one DrawRow; "accept" is
// VerifyDrafts of drafts that are all accepted, for each row that it reads;
// "reject" is all that a rejected draft with rows costs, and "one-hot" one
// without rows. Rows miss the second-level cache, as after a model's last
// layer.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "benchmarks/median.h"
#include "kernels/verify/verify.h"

namespace espalier {
namespace {

constexpr int kRounds = 15;
constexpr int kDrafts = 16;

long long checksum = 0;  // so that nothing is left out

double ProcessorMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * now.tv_sec + 1e-3 * now.tv_nsec;
}

template <typename Body>
double TimeOf(const Body& body) {
  const double start = ProcessorMicroseconds();
  body();
  return ProcessorMicroseconds() - start;
}

// Rows of a target, each near the one of a draft.
struct BenchRows {
  std::vector<std::vector<float>> target, draft;

  explicit BenchRows(int vocab_size) {
    std::mt19937 random(1);
    std::normal_distribution<float> logit(0, 3), noise(0, 0.3f);
    for (int i = 0; i <= kDrafts; ++i) {
      target.emplace_back(vocab_size);
      for (float& l : target.back()) l = logit(random);
      draft.push_back(target.back());
      for (float& l : draft.back()) l += noise(random);
    }
  }
};

std::vector<VerifyRow> RowsOf(const std::vector<std::vector<float>>& logits,
                              const SamplingParams& params) {
  std::vector<VerifyRow> rows;
  for (size_t i = 0; i < logits.size(); ++i) {
    rows.push_back(
        {.logits = logits[i],
         .options = {.params = params, .position = static_cast<uint32_t>(i)}});
  }
  return rows;
}

// The least likely token that is still drawn with some probability: it is
// rejected nearly always.
TokenId UnlikelyOf(const std::vector<float>& target,
                   const std::vector<float>& draft) {
  size_t token = 0;
  for (size_t t = 0; t < target.size(); ++t) {
    if (draft[t] - target[t] > draft[token] - target[token]) token = t;
  }
  return static_cast<TokenId>(token);
}

void Report(const char* name, const BenchRows& rows,
            const SamplingParams& params) {
  const std::vector<VerifyRow> targets = RowsOf(rows.target, params);
  const std::vector<VerifyRow> drafts = RowsOf(rows.draft, params);
  std::vector<TokenId> same;  // drawn from rows that are the target's
  for (int i = 0; i < kDrafts; ++i) {
    same.push_back(DrawDraft(targets[i], VerifyMode::kRejection).token);
  }
  std::vector<double> draw, accept, reject, one_hot;
  for (int round = 0; round < kRounds; ++round) {
    draw.push_back(TimeOf([&] {
                     for (const VerifyRow& row : targets) {
                       checksum += DrawRow(row.logits, row.options).token;
                     }
                   }) /
                   (kDrafts + 1));
    accept.push_back(
        TimeOf([&] {
          checksum +=
              VerifyDrafts({.drafts = same,
                            .target_rows = targets,
                            .draft_rows = std::span(targets).first(kDrafts)})
                  .length;
        }) /
        (2 * kDrafts + 1));
    const int i = round % kDrafts;
    const TokenId unlikely = UnlikelyOf(rows.target[i], rows.draft[i]);
    const auto judge = [&](std::span<const VerifyRow> draft_rows) {
      return TimeOf([&] {
        checksum +=
            VerifyDrafts({.drafts = {&unlikely, 1},
                          .target_rows = std::span(targets).subspan(i, 2),
                          .draft_rows = draft_rows})
                .length;
      });
    };
    reject.push_back(judge(std::span(drafts).subspan(i, 1)));
    one_hot.push_back(judge({}));
  }
  std::printf("%-28s %9.2f %9.2f %9.2f %9.2f\n", name, Median(draw),
              Median(accept), Median(reject), Median(one_hot));
}

void Run(int vocab_size) {
  const BenchRows rows(vocab_size);
  std::printf("%-28s %9s %9s %9s %9s\n", "microseconds", "draw", "accept",
              "reject", "one-hot");
  Report("temperature 1", rows, {});
  Report("temperature 0.7", rows, {.temperature = 0.7f});
  Report("top_k 50", rows, {.top_k = 50});
  Report("top_p 0.9", rows, {.top_p = 0.9f});
  Report("min_p 0.05", rows, {.min_p = 0.05f});
  Report("top_k 50, top_p 0.9, 0.7", rows,
         {.temperature = 0.7f, .top_k = 50, .top_p = 0.9f});
  std::printf("(%lld)\n", checksum);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::Run(argc > 1 ? std::atoi(argv[1]) : 128256);
  return 0;
}
