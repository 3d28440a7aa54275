// Reports as the device writes them, in memory of the host.
#include "executor/cuda/cuda_report_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "executor/candidate_filter.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/sample/sample.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr int kMaxGroups = 64;
constexpr int kMaxCandidates = 2000;
constexpr int kNumBest = 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The second of two reports. Log-probabilities say where they were written.
class FakeReport {
 public:
  FakeReport()
      : headers_(2),
        num_candidates_(2 * kMaxGroups),
        candidates_(2 * kMaxCandidates),
        scores_(2 * kMaxCandidates),
        best_(2 * kMaxGroups * kNumBest),
        num_found_(2 * kMaxGroups, kNumBest) {
    for (int i = 0; i < kMaxCandidates; ++i) {
      scores_[kMaxCandidates + i] = {.log_prob = -1.0f * i, .rank = 1 + i};
    }
    for (int i = 0; i < kMaxGroups * kNumBest; ++i) {
      best_[kMaxGroups * kNumBest + i] = {0, i, 0};
    }
  }

  // Writes the candidates of a group of one row of logits or several.
  CudaAnswerPart Write(const std::vector<Candidate>& candidates, int first_rank,
                       int num_logits_rows = 1) {
    const CudaAnswerPart part = {
        .group_idx = num_groups_++,
        .first_candidate = num_written_,
        .first_rank = first_rank,
        .log_probs = {.first_asked = num_written_,
                      .first_best_group = num_logits_rows_,
                      .first_best = num_logits_rows_ * kNumBest,
                      .num_best = kNumBest}};
    num_candidates_[kMaxGroups + part.group_idx] =
        static_cast<int>(candidates.size());
    std::ranges::copy(candidates,
                      candidates_.begin() + kMaxCandidates + num_written_);
    num_written_ += static_cast<int>(candidates.size());
    num_logits_rows_ += num_logits_rows;
    return part;
  }

  SelectionResult Read(const CudaStep::Answer& answer) {
    const CudaReportRing ring = {.headers = headers_.data(),
                                 .num_candidates = num_candidates_.data(),
                                 .candidates = candidates_.data(),
                                 .num_reports = 2,
                                 .max_groups = kMaxGroups,
                                 .max_candidates = kMaxCandidates};
    const CudaLogprobRing logprob_ring = {.scores = scores_.data(),
                                          .best = best_.data(),
                                          .num_found = num_found_.data(),
                                          .num_reports = 2,
                                          .max_asked = kMaxCandidates,
                                          .max_best = kMaxGroups * kNumBest,
                                          .max_logits_rows = kMaxGroups};
    return CudaReportReader(ring, logprob_ring, 1).Read(answer);
  }

  // Returns the log-probability of the candidate at index `place`, whose row of
  // logits is number `logits_row` of all.
  static TokenLogProb LogProbOf(TokenId token, int place, int logits_row) {
    return {
        .token = token,
        .log_prob = -1.0f * place,
        .rank = 1 + place,
        .best = {{logits_row * kNumBest, 0}, {logits_row * kNumBest + 1, 0}}};
  }

 private:
  std::vector<CudaReportRing::Header> headers_;
  std::vector<int> num_candidates_;
  std::vector<Candidate> candidates_;
  std::vector<CudaTokenScore> scores_;
  std::vector<Candidate> best_;
  std::vector<int> num_found_;
  int num_groups_ = 0;
  int num_written_ = 0;
  int num_logits_rows_ = 0;
};

// Beam a feeds 5 6 and 5 7, beam b nothing. Of the rows of logits of both
// paths that are the same beginning, the first is read.
TEST(CudaReportReaderTest, StepsOfPathsAreReplayed) {
  FakeReport report;
  PlanSelection selection;
  selection.num_rows = selection.num_slots = 2;
  selection.cum_log_probs = {-1, -20};
  selection.eos_token_ids = {2};
  selection.choice = BeamSelection{
      .num_candidates = 3,
      .paths = {.ranks = {0, 0, 1}, .drafts = {{5, 6}, {5, 7}, {}}}};
  CudaStep::Answer answer = {.has_log_probs = true, .paths = &selection};
  const auto write = [&](std::vector<Candidate> candidates) {
    answer.parts.push_back(report.Write(candidates, 0));
  };
  write({{0, 5, -0.5f}, {0, 2, -1}, {0, 9, -40}});  // a
  write({{0, 6, -0.25f}, {0, 7, -0.5f}});           // a 5
  write({{0, 8, -1}});                              // a 5 6
  write({{0, 1, 0}});                               // a, of the other path
  write({{0, 1, 0}});                               // a 5, as well
  write({{0, 8, -1}});                              // a 5 7
  write({{0, 4, -1}});                              // b
  const SelectionResult result = report.Read(answer);
  // The second best that is no end, of b, is on no path.
  EXPECT_THAT(result.candidates,
              ElementsAre(Candidate{0, 5, -1.5f}, Candidate{0, 2, -2},
                          Candidate{1, 4, -21}));
  EXPECT_THAT(result.logprobs, ElementsAre(FakeReport::LogProbOf(5, 0, 0),
                                           FakeReport::LogProbOf(2, 1, 0),
                                           FakeReport::LogProbOf(4, 9, 6)));
  EXPECT_THAT(result.further, IsEmpty());

  // A single beam continues as far as its paths do.
  selection.num_rows = selection.num_slots = 1;
  selection.cum_log_probs = {-1};
  selection.Choose<BeamSelection>().paths = {.ranks = {0, 0},
                                             .drafts = {{5, 6}, {5, 7}}};
  answer.parts.pop_back();
  const SelectionResult alone = report.Read(answer);
  EXPECT_FALSE(alone.has_unverified_drafts);
  ASSERT_EQ(alone.further.size(), 2u);
  EXPECT_THAT(alone.further[0].candidates,
              ElementsAre(Candidate{0, 6, -1.75f}, Candidate{0, 7, -2}));
  EXPECT_THAT(alone.further[0].logprobs,
              ElementsAre(FakeReport::LogProbOf(6, 3, 1),
                          FakeReport::LogProbOf(7, 4, 1)));
  EXPECT_THAT(alone.further[1].candidates,
              ElementsAre(Candidate{0, 8, -2.75f}));
  EXPECT_THAT(alone.further[1].logprobs,
              ElementsAre(FakeReport::LogProbOf(8, 5, 2)));
}

TEST(CudaReportReaderTest, GroupsAreReadAsTheyAre) {
  FakeReport report;
  report.Write({{0, 8, -1}}, 0);
  const CudaAnswerPart part =
      report.Write({{1, 5, -1}, {0, 5, -2}, {0, kNoToken, 0}}, 0, 2);
  const SelectionResult result =
      report.Read({.has_log_probs = true, .parts = {part}});
  EXPECT_THAT(result.candidates,
              ElementsAre(Candidate{1, 5, -1}, Candidate{0, 5, -2},
                          Candidate{0, kNoToken, 0}));
  EXPECT_THAT(result.logprobs,
              ElementsAre(FakeReport::LogProbOf(5, 1, 2),
                          FakeReport::LogProbOf(5, 2, 1),
                          TokenLogProb{.token = kNoToken, .best = {}}));
  // That was not fed.
  EXPECT_THAT(report.Read({.has_log_probs = true}).candidates, IsEmpty());
}

// The report has what each row of logits drew, with its own log-probability.
TEST(CudaReportReaderTest, RunsOfDraftsAreReadUpToWhatWasRejected) {
  PlanSelection selection;
  selection.request = RequestId{3};
  selection.num_rows = 2;
  selection.cum_log_probs = {-1, -2};
  selection.choice =
      DrawSelection{.samples = {0, 1}, .drafts = {.tokens = {{5, 6}, {8}}}};
  FakeReport report;
  report.Write({{0, 8, -1}}, 0);
  const CudaAnswerPart part = report.Write(
      {{0, 5, -0.5f}, {1, 7, -0.25f}, {2, 6, -4}, {3, 8, -1}, {4, 2, -1}}, 0,
      5);
  const SelectionResult result =
      report.Read({.request = selection.request,
                   .has_log_probs = true,
                   .runs = &selection,
                   .logits_rows = SelectionRowsOf(selection),
                   .parts = {part}});
  EXPECT_EQ(result.request, selection.request);
  EXPECT_THAT(result.num_tokens, ElementsAre(2, 2));
  EXPECT_THAT(result.candidates,
              ElementsAre(Candidate{0, 5, -1.5f}, Candidate{0, 7, -1.75f},
                          Candidate{1, 8, -3}, Candidate{1, 2, -4}));
  EXPECT_THAT(result.logprobs, ElementsAre(FakeReport::LogProbOf(5, 1, 1),
                                           FakeReport::LogProbOf(7, 2, 2),
                                           FakeReport::LogProbOf(8, 4, 4),
                                           FakeReport::LogProbOf(2, 5, 5)));
}

// With drafts that the plan did not have, tokens after an end are ignored. With
// rejection, the end itself was drafted.
TEST(CudaReportReaderTest, RunsOfPendingDraftsEndWithTheirTexts) {
  for (const bool keeps_end : {false, true}) {
    PlanSelection selection;
    selection.num_rows = 2;
    selection.cum_log_probs = {0, 0};
    DrawSelection& draws = selection.Choose<DrawSelection>();
    draws.samples = {0, 1};
    draws.drafts.tokens = {{0, 0, 0}, {8}};
    const auto tokens =
        std::make_shared<const std::vector<TokenId>>(std::vector{5, 2, 6});
    std::vector<PendingDraft>& pending = draws.drafts.pending;
    pending.resize(2);
    pending[0] = PendingDraft({tokens, tokens->data()}, 1, 3);
    pending[0].EndAt(std::vector<TokenId>{2}, keeps_end);
    FakeReport report;
    const CudaAnswerPart part = report.Write({{0, 5, -1},
                                              {1, 2, -1},
                                              {2, 6, -1},
                                              {3, 4, -1},
                                              {4, 8, -1},
                                              {5, 1, -1}},
                                             0, 6);
    const SelectionResult result =
        report.Read({.request = selection.request,
                     .runs = &selection,
                     .logits_rows = SelectionRowsOf(selection),
                     .parts = {part}});
    EXPECT_THAT(result.num_tokens, ElementsAre(keeps_end ? 3 : 2, 2));
    EXPECT_EQ(result.candidates[1], (Candidate{0, 2, -2}));
  }
}

// A sampled (0), stochastic (1) or diverse (2) search's rows.
class AnyRows {
 public:
  explicit AnyRows(int seed) : random_(seed) {
    auto params = std::make_shared<SelectionParams>();
    const int kind = seed % 3;
    params->sampling.seed = seed;
    selection.params = params;
    selection.num_rows = 1 + Below(9);
    RowSelection& choice = selection.Choose<RowSelection>();
    choice.num_candidates = 2 + Below(20);
    choice.gumbel_top_k = kind < 2;
    for (int row = 0; row < selection.num_rows; ++row) {
      selection.cum_log_probs.push_back(-0.5f * row);
    }
    if (kind == 2) {
      KeepEachBlock kept = {.num_chosen = 1, .penalty = 0.5};
      for (int row = 0; row < selection.num_rows; ++row) {
        kept.blocks.push_back({row, 1, 2});
      }
      choice.ranking = std::move(kept);
      return;
    }
    KeepAcrossRows kept = {.count = 1 + Below(12)};
    if (kind == 1) kept.maxima.assign(selection.num_rows, -1.0);
    choice.ranking = std::move(kept);
  }

  // Returns the device's output of a row: rows with noise lack the beam's own
  // sum.
  std::vector<Candidate> Device(int row) {
    std::vector<Candidate> values;
    for (TokenId token = 0; token < 40; ++token) {
      values.push_back({0, token, -0.1f * static_cast<float>(Below(80))});
    }
    std::vector<double> keys;
    AddNoise(values, selection.params->sampling.seed, row,
             selection.num_generated, &keys);
    const bool gumbel_top_k = selection.as_rows()->gumbel_top_k;
    std::ranges::sort(values, [&](const Candidate& a, const Candidate& b) {
      const double x = gumbel_top_k ? keys[a.token] : a.cum_log_prob;
      const double y = gumbel_top_k ? keys[b.token] : b.cum_log_prob;
      return x != y ? x > y : a.token < b.token;
    });
    values.resize(selection.num_candidates());
    // Below what float32 reaches.
    if (gumbel_top_k && Below(3) == 0) values.back().cum_log_prob = -kInfinity;
    return values;
  }

  PlanSelection selection;

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }

  std::mt19937 random_;
};

TEST(CudaReportReaderTest, OfRowsThereIsWhatCanBeTakenWithItsLogProbs) {
  size_t num_left = 0, num_all = 0;
  for (int seed = 0; seed < 600; ++seed) {
    AnyRows search(seed);
    PlanSelection& selection = search.selection;
    FakeReport report;
    report.Write({{0, 8, -1}, {0, 9, -1}}, 0);
    CudaStep::Answer answer = {.has_log_probs = true, .rows = &selection};
    CandidateFilter contenders(selection);
    std::vector<TokenLogProb> log_probs;  // [candidates of the device]
    int place = 2;
    for (int row = 0; row < selection.num_rows; ++row) {
      std::vector<Candidate> candidates = search.Device(row);
      answer.parts.push_back(report.Write(candidates, row));
      for (Candidate& candidate : candidates) {
        log_probs.push_back(
            FakeReport::LogProbOf(candidate.token, place++, 1 + row));
        candidate.beam = row;
        if (!selection.as_rows()->gumbel_top_k) continue;
        candidate.cum_log_prob += selection.cum_log_probs[row];
      }
      std::erase_if(candidates, [](const Candidate& c) {
        return c.cum_log_prob == -kInfinity;
      });
      contenders.Add(row, candidates);
    }
    const SelectionResult result = report.Read(answer);
    ASSERT_THAT(result.candidates, ElementsAreArray(contenders.Take())) << seed;
    ASSERT_EQ(result.logprobs.size(), result.candidates.size()) << seed;
    for (size_t i = 0; i < result.candidates.size(); ++i) {
      const auto& [row, token, sum] = result.candidates[i];
      const auto expected = std::find_if(
          log_probs.begin() + row * selection.num_candidates(), log_probs.end(),
          [&](const TokenLogProb& l) { return l.token == token; });
      ASSERT_EQ(result.logprobs[i], *expected) << seed;
    }
    num_left += result.candidates.size();
    // Without a ranking by the strategy, all candidates are kept.
    selection.EditRows().ranking = KeepEachRow{};
    const SelectionResult all = report.Read(answer);
    ASSERT_EQ(all.logprobs.size(), all.candidates.size()) << seed;
    num_all += all.candidates.size();
  }
  EXPECT_LT(2 * num_left, num_all);
}

}  // namespace
}  // namespace espalier
