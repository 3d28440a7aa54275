#include "kernels/select/best_candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/float_limits.h"
#include "kernels/select/merge_candidates.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BestCandidatesTest, WhatCannotMatterIsToldAfterTwiceAsManyAsAsked) {
  BestCandidates best(2);
  EXPECT_EQ(best.min_sum(), -kInf);
  best.Add(3, std::vector<TokenScore>{{5, -1}, {6, -2}, {7, -4}}, -1);
  EXPECT_EQ(best.min_sum(), -kInf);
  best.Add(1, std::vector<TokenScore>{{8, -1}, {9, -kInf}}, -1);
  EXPECT_EQ(best.min_sum(), -2);
  best.Add(0, std::vector<TokenScore>{{4, -1.5}}, -1);
  EXPECT_THAT(best.Take(),
              ElementsAre(Candidate{1, 8, -2}, Candidate{3, 5, -2}));
  EXPECT_THAT(best.Take(), IsEmpty());
}

// Logits and sums of few values, so that ties are everywhere; NaN and -inf too.
class AnyGroup {
 public:
  explicit AnyGroup(int seed) : random_(seed) {
    num_candidates = 1 + Below(40);
    vocab_size = 1 + Below(60);
    const int num_rows = 1 + Below(20);
    for (int row = 0; row < num_rows; ++row) {
      cum_log_probs.push_back(Below(20) == 0   ? -kInf
                              : Below(20) == 0 ? std::nanf("")
                                               : -0.5f * Below(8));
      std::vector<float>& logits = rows.emplace_back(vocab_size);
      for (float& logit : logits) {
        logit = Below(9) == 0 ? -kInf : 0.5f * Below(9);
      }
      std::vector<TokenEdit>& list = edits.emplace_back();
      for (TokenId token = 0; token < vocab_size; ++token) {
        if (Below(4) > 0) continue;
        list.push_back({.token = token,
                        .banned = Below(3) == 0,
                        .repeated = Below(2) == 0,
                        .bias = 0.5f * Below(5)});
      }
    }
    order.resize(num_rows);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
  }

  RowOptions OptionsOf(int row) const {
    return {.num_candidates = num_candidates,
            .repetition_penalty = 1.5f,
            .edits = edits[row]};
  }

  int num_candidates, vocab_size;
  std::vector<float> cum_log_probs;
  std::vector<std::vector<float>> rows;
  std::vector<std::vector<TokenEdit>> edits;
  std::vector<int> order;

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }
  std::mt19937 random_;
};

// With rows that are not ranked to their ends, in any order, on any threads.
TEST(BestCandidatesTest, AnyRowsInAnyOrderGiveWhatTheirMergeGives) {
  const auto pool = ThreadPool::Create(3).value();
  for (int seed = 0; seed < 2000; ++seed) {
    const AnyGroup group(seed);
    std::vector<std::vector<TokenScore>> chosen;
    for (size_t row = 0; row < group.rows.size(); ++row) {
      chosen.push_back(
          SelectRow(group.rows[row], group.OptionsOf(static_cast<int>(row))));
    }
    const std::vector<Candidate> expected = reference::MergeCandidates(
        chosen, group.cum_log_probs, group.num_candidates);
    BestCandidates best(group.num_candidates);
    pool->ParallelFor(static_cast<int>(group.order.size()), [&](int i) {
      const int row = group.order[i];
      RowOptions options = group.OptionsOf(row);
      options.cum_log_prob = group.cum_log_probs[row];
      options.min_sum = best.min_sum();
      best.Add(row, SelectRow(group.rows[row], options), options.cum_log_prob);
    });
    ASSERT_EQ(best.Take(), expected) << seed;
  }
}

// Ending candidates ranked below twice the beams are dropped, and others as
// soon as there are enough for all beams.
TEST(BestCandidatesTest, WhereTokensEndTheRestIsWhatBeamsCanUse) {
  const auto pool = ThreadPool::Create(3).value();
  size_t num_left_out = 0;
  for (int seed = 0; seed < 2000; ++seed) {
    const AnyGroup group(seed);
    const int num_beams = 1 + seed % 7;
    std::vector<TokenId> ending;
    for (TokenId t = 0; t < group.vocab_size; ++t) {
      if ((t * 7 + seed) % 10 < 8) ending.push_back(t);
    }
    const auto ends = [&](const Candidate& c) {
      return std::ranges::binary_search(ending, c.token);
    };
    std::vector<std::vector<TokenScore>> chosen;
    const auto options_of = [&](int row) {
      RowOptions options = group.OptionsOf(row);
      options.num_candidates = 1000;
      return options;
    };
    for (size_t row = 0; row < group.rows.size(); ++row) {
      chosen.push_back(
          SelectRow(group.rows[row], options_of(static_cast<int>(row))));
    }
    std::vector<Candidate> expected;
    int num_lasting = 0;
    for (const Candidate& c :
         reference::MergeCandidates(chosen, group.cum_log_probs, 100000)) {
      const bool lasts = !ends(c) && num_lasting++ < num_beams;
      if (std::ssize(expected) < 2 * num_beams || lasts) {
        expected.push_back(c);
      } else {
        ++num_left_out;
      }
    }
    BestCandidates best(1000, num_beams, ending);
    pool->ParallelFor(static_cast<int>(group.order.size()), [&](int i) {
      const int row = group.order[i];
      RowOptions options = options_of(row);
      options.cum_log_prob = group.cum_log_probs[row];
      options.min_sum = best.min_sum();
      best.Add(row, SelectRow(group.rows[row], options), options.cum_log_prob);
    });
    const std::vector<Candidate> taken = best.Take();
    ASSERT_EQ(taken, expected) << seed;
  }
  EXPECT_GT(num_left_out, 10000);
}

}  // namespace
}  // namespace espalier
