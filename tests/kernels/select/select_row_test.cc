// The fast form of SelectRow against its twin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/select/select.h"
#include "tests/few_cases.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/row_cases.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ScoreDomain kDomains[] = {ScoreDomain::kLogProbs,
                                    ScoreDomain::kLogits};

const std::string kKinds[] = {"normal",   "ties",   "near ties", "constant",
                              "rising",   "peak",   "holes",     "outliers",
                              "infinite", "widest", "nothing"};

bool RankedByLogProb(const Scores& tokens) {
  return std::is_sorted(
      tokens.begin(), tokens.end(), [](const auto& a, const auto& b) {
        return a.log_prob != b.log_prob ? a.log_prob > b.log_prob
                                        : a.token < b.token;
      });
}

// A row and the log-probability of every token, from the twin.
struct TestRow {
  explicit TestRow(std::vector<float> row)
      : logits(std::move(row)), log_probs(logits.size(), -kInf) {
    const RowOptions all = {.num_candidates = static_cast<int>(logits.size())};
    for (const TokenScore& t : reference::SelectRow(logits, all)) {
      log_probs[t.token] = t.log_prob;
    }
  }

  std::vector<float> logits;
  std::vector<float> log_probs;
};

// Returns the log-probability of every token that selection reports.
std::vector<float> Reported(const TestRow& row, const RowOptions& options) {
  if (options.domain == ScoreDomain::kLogits) return row.log_probs;
  std::vector<float> log_probs = row.log_probs;
  if (options.is_allow_list) std::ranges::fill(log_probs, -kInf);
  for (const TokenEdit& edit : options.edits) {
    float& l = log_probs[edit.token];
    l = edit.banned ? -kInf
                    : EditedScore(row.log_probs[edit.token], edit,
                                  options.repetition_penalty);
  }
  if (!options.renormalizes) return log_probs;
  const double max = *std::ranges::max_element(log_probs);
  if (max == -kInf) return log_probs;
  double sum = 0;
  for (const float l : log_probs) sum += std::exp(l - max);
  for (float& l : log_probs) {
    l = static_cast<float>((l - max) - std::log(sum));
  }
  return log_probs;
}

// All that the two forms must have in common.
void ExpectAgreement(const TestRow& row, const RowOptions& options) {
  const Scores fast = SelectRow(row.logits, options);
  const Scores twin = reference::SelectRow(row.logits, options);
  const std::vector<float> log_probs = Reported(row, options);
  ASSERT_EQ(fast.size(), twin.size());
  for (size_t i = 0; i < fast.size(); ++i) {
    const auto [token, log_prob] = fast[i];
    const float tolerance = std::max(1.0f, options.repetition_penalty) *
                            Tolerance(row.logits.size(), log_prob) *
                            (options.renormalizes ? 4 : 1);
    EXPECT_PRED3(Near, log_prob, log_probs[token], tolerance) << token;
    EXPECT_PRED3(Near, log_prob, twin[i].log_prob, tolerance) << i;
  }
  std::vector<TokenId> fast_tokens = TokensOf(fast);
  std::vector<TokenId> twin_tokens = TokensOf(twin);
  if (options.domain == ScoreDomain::kLogProbs) {
    EXPECT_TRUE(RankedByLogProb(fast));
    std::sort(fast_tokens.begin(), fast_tokens.end());
    std::sort(twin_tokens.begin(), twin_tokens.end());
    ASSERT_EQ(std::ranges::adjacent_find(fast_tokens), fast_tokens.end());
    if (!options.edits.empty()) return;  // near ties at the cut may differ
  }
  EXPECT_EQ(fast_tokens, twin_tokens);
}

void ExpectAgreementOn(const std::string& kind, int vocab_size,
                       std::initializer_list<int> counts) {
  const TestRow row(Row(kind, vocab_size));
  for (const ScoreDomain domain : kDomains) {
    for (const int count : counts) {
      SCOPED_TRACE(::testing::Message()
                   << kind << " row of " << vocab_size << ", domain "
                   << static_cast<int>(domain) << ", best " << count);
      ExpectAgreement(row, {.domain = domain, .num_candidates = count});
    }
  }
}

class SelectRowTest
    : public ::testing::TestWithParam<std::tuple<int64_t, std::string>> {
 protected:
  int64_t target() const { return std::get<0>(GetParam()); }
  std::string kind() const { return std::get<1>(GetParam()); }

 private:
  TargetChoice choice_{target()};
};

TEST_P(SelectRowTest, EqualsTheTwinOnSmallRows) {
  for (const int vocab_size :
       {1, 2, 3, 15, 16, 17, 31, 63, 64, 65, 1000, 1023, 1024, 1025, 2100}) {
    ExpectAgreementOn(kind(), vocab_size, {1, 2, 8, 16, 64, 1000, 2100, 10000});
  }
}

TEST_P(SelectRowTest, EqualsTheTwinOnLargeRows) {
  ExpectAgreementOn(kind(), 6000, {1, 16, 1000, 10000});
  ExpectAgreementOn(kind(), 32000, {8, 64, 10000, 32000});
}

TEST_P(SelectRowTest, EqualsTheTwinOnTheLargestRows) {
  ExpectAgreementOn(kind(), 128256, {16});
  if (!testing::FewCases()) ExpectAgreementOn(kind(), 256000, {10000});
}

INSTANTIATE_TEST_SUITE_P(Rows, SelectRowTest,
                         ::testing::Combine(EachTarget(),
                                            ::testing::ValuesIn(kKinds)),
                         [](const auto& test) {
                           std::string name =
                               hwy::TargetName(std::get<0>(test.param));
                           name += "_" + std::get<1>(test.param);
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

using SelectRowEditsTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, SelectRowEditsTest, EachTarget(),
                         TargetTestName);

TokenEdit SomeEdit(TokenId token, std::mt19937& random) {
  const auto some = [&](float value) { return random() % 2 ? value : 0.0f; };
  return {.token = token,
          .banned = random() % 2 == 0,
          .repeated = random() % 2 == 0,
          .bias = some(0.75f),
          .penalty = some(-1.5f)};
}

// Edits at the ends of blocks and chunks, and of the best token.
std::vector<TokenEdit> RandomEdits(const std::vector<float>& logits, int seed) {
  const int size = static_cast<int>(logits.size());
  std::set<TokenId> tokens = {0, size - 1};
  for (const TokenId t : {1, 63, 64, 127, 1023, 1024, 1025, 2047, 2048}) {
    if (t < size) tokens.insert(t);
  }
  std::mt19937 random(seed);
  for (int i = 0; i < 40; ++i) tokens.insert(random() % size);
  tokens.insert(std::ranges::max_element(logits) - logits.begin());
  std::vector<TokenEdit> edits;
  for (const TokenId t : tokens) edits.push_back(SomeEdit(t, random));
  return edits;
}

TEST_P(SelectRowEditsTest, EditedRowsEqualTheTwin) {
  for (const std::string& kind : kKinds) {
    for (const int size : {1, 2, 64, 65, 1000, 1024, 1025, 3000, 6000}) {
      const TestRow row(Row(kind, size));
      const std::vector<TokenEdit> edits = RandomEdits(row.logits, size);
      for (const float penalty : {1.3f, 0.5f, 100.0f}) {
        for (const int count : {1, 5, 64, 7000}) {
          for (const ScoreDomain domain : kDomains) {
            SCOPED_TRACE(::testing::Message()
                         << kind << " row of " << size << ", penalty "
                         << penalty << ", best " << count);
            for (const bool is_allow_list : {false, true}) {
              ExpectAgreement(row, {.domain = domain,
                                    .num_candidates = count,
                                    .repetition_penalty = penalty,
                                    .edits = edits,
                                    .is_allow_list = is_allow_list});
            }
          }
        }
      }
    }
  }
}

TEST_P(SelectRowEditsTest, RenormalisedRowsEqualTheTwin) {
  for (const std::string& kind : kKinds) {
    for (const int size : {1, 2, 65, 1024, 1025, 3000}) {
      const TestRow row(Row(kind, size));
      const std::vector<TokenEdit> edits = RandomEdits(row.logits, size);
      for (const float penalty : {1.3f, 0.5f}) {
        for (const bool is_allow_list : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << kind << " row of " << size << ", penalty " << penalty
                       << ", allow list " << is_allow_list);
          ExpectAgreement(row, {.num_candidates = 64,
                                .repetition_penalty = penalty,
                                .edits = edits,
                                .is_allow_list = is_allow_list,
                                .renormalizes = true});
        }
      }
    }
  }
}

// The four tokens have 4/8, 2/8, 1/8 and 1/8; without the first 2/4, 1/4, 1/4.
TEST_P(SelectRowEditsTest, RenormalisedScoresAreLogProbabilities) {
  const std::vector<float> logits = {std::log(4.0f), std::log(2.0f), 0, 0};
  std::vector<TokenEdit> edits = {{.token = 0, .banned = true}};
  RowOptions options = {.num_candidates = 4, .edits = edits};
  options.renormalizes = true;
  const auto expect = [&](std::vector<double> shares) {
    const Scores tokens = SelectRow(logits, options);
    ASSERT_EQ(tokens.size(), shares.size());
    for (size_t i = 0; i < shares.size(); ++i) {
      EXPECT_NEAR(std::exp(tokens[i].log_prob), shares[i], 1e-6) << i;
    }
  };
  expect({0.5, 0.25, 0.25});
  // If one token has nearly all probability, the rest is still exact.
  const std::vector<float> peak = {60, std::log(2.0f), 0, 0};
  const Scores rest = SelectRow(peak, options);
  ASSERT_EQ(rest.size(), 3);
  EXPECT_NEAR(std::exp(rest[0].log_prob), 0.5, 1e-5);
  edits[0] = {.token = 0, .bias = std::log(2.0f)};  // total 12
  expect({8.0 / 12, 2.0 / 12, 1.0 / 12, 1.0 / 12});
  // This bound drops candidates whose final sum is below it.
  options.min_sum = std::log(1.5f / 12);
  expect({8.0 / 12, 2.0 / 12});
}

// Worked by hand: lse = log(4 + 2 + 1 + 1) = log 8.
TEST_P(SelectRowEditsTest, EditsActOnLogProbsOrOnLogits) {
  const std::vector<float> logits = {std::log(4.0f), std::log(2.0f), 0, 0};
  const std::vector<TokenEdit> edits = {{.token = 0, .repeated = true},
                                        {.token = 2, .banned = true}};
  RowOptions options = {
      .num_candidates = 4, .repetition_penalty = 4, .edits = edits};
  Scores by_log_prob = SelectRow(logits, options);
  EXPECT_THAT(TokensOf(by_log_prob), ElementsAre(1, 3, 0));
  EXPECT_FLOAT_EQ(by_log_prob[0].log_prob, -std::log(4.0f));
  EXPECT_FLOAT_EQ(by_log_prob[2].log_prob, 4 * -std::log(2.0f));
  options.domain = ScoreDomain::kLogits;
  Scores by_logit = SelectRow(logits, options);
  EXPECT_THAT(TokensOf(by_logit), ElementsAre(1, 0, 3));
  EXPECT_FLOAT_EQ(by_logit[1].log_prob, -std::log(2.0f));
}

TEST_P(SelectRowEditsTest, ARowWithAllTokensBannedOffersNone) {
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<TokenEdit> edits = {{.token = 0, .banned = true},
                                        {.token = 1, .banned = true},
                                        {.token = 2, .banned = true}};
  for (const ScoreDomain domain : kDomains) {
    const RowOptions options = {
        .domain = domain, .num_candidates = 3, .edits = edits};
    EXPECT_THAT(SelectRow(logits, options), IsEmpty());
  }
}

}  // namespace
}  // namespace espalier
