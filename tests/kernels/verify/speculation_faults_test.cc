// Sensitivity of the checks of speculative decoding: every planted fault fails
// a check that the real sampler passes. Some faults would pass if 10 standard
// deviations of Pearson's statistic were allowed. Prints which.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/sample/random.h"
#include "tests/few_cases.h"
#include "tests/kernels/verify/speculation_checks.h"

namespace espalier {
namespace {

using ::espalier::testing::kLeastPValue;

// A verifier in double with every part that one may get wrong.
struct PlantedVerifier {
  RandomPurpose accept = RandomPurpose::kAccept;
  RandomPurpose recover = RandomPurpose::kRecover;
  // A number in [0, 1) of 24 bits.
  bool float_uniform = false;
  // Each token's p less the q of the token of the same rank.
  bool residual_by_rank = false;
  bool recovery_of_p = false;
  bool bonus_of_draft = false;
  bool q_before_filters = false;
  bool one_uniform_a_draft = false;

  double NoiseOf(const VerifyInputs& inputs, size_t row,
                 RandomPurpose purpose) const {
    const DrawOptions& options = inputs.target_rows[row].options;
    const RandomKey key = {.seed = options.params.seed,
                           .sample = options.sample,
                           .position = options.position,
                           .purpose = purpose};
    if (!float_uniform) return Uniform(key, 0);
    return static_cast<float>(WordsAt(key, 0).words[0] >> 8) * 0x1p-24f;
  }

  static TokenId InvertSum(const std::vector<double>& p, double uniform) {
    TokenId last = kNoToken;
    double sum = 0;
    for (TokenId t = 0; t < std::ssize(p); ++t) {
      if (p[t] == 0) continue;
      last = t;
      sum += p[t];
      if (sum > uniform) break;
    }
    return last;
  }

  static std::vector<int> RanksOf(const std::vector<double>& p) {
    std::vector<int> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](int t) { return p[t]; });
    return order;
  }

  std::vector<double> Recovery(reference::VerifyPosition position) const {
    if (recovery_of_p) return position.p;
    if (!residual_by_rank) return position.Recovery();
    const std::vector<int> of_p = RanksOf(position.p);
    const std::vector<int> of_q = RanksOf(position.q);
    std::vector<double> q(position.q.size());
    for (size_t i = 0; i < q.size(); ++i) q[of_p[i]] = position.q[of_q[i]];
    position.q = q;
    return position.Recovery();
  }

  reference::VerifyPosition PositionOf(const VerifyInputs& inputs,
                                       size_t row) const {
    VerifyRow draft_row = inputs.draft_rows[row];
    if (q_before_filters) {
      const SamplingParams& params = draft_row.options.params;
      draft_row.options.params = {.temperature = params.temperature};
    }
    return reference::VerifyPositionOf(inputs.target_rows[row], &draft_row,
                                       inputs.drafts[row]);
  }

  std::vector<TokenId> Verify(const VerifyInputs& inputs) const {
    std::vector<TokenId> tokens;
    const size_t k = inputs.drafts.size();
    for (size_t row = 0; row < k; ++row) {
      const TokenId draft = inputs.drafts[row];
      const reference::VerifyPosition position = PositionOf(inputs, row);
      const double u = NoiseOf(inputs, one_uniform_a_draft ? 0 : row, accept);
      if (position.Acceptance(draft) < u) {
        tokens.push_back(
            InvertSum(Recovery(position), NoiseOf(inputs, row, recover)));
        return tokens;
      }
      tokens.push_back(draft);
    }
    const VerifyRow& last =
        bonus_of_draft ? inputs.draft_rows.back() : inputs.target_rows.back();
    tokens.push_back(
        InvertSum(reference::DrawProbabilities(last.logits, last.options),
                  NoiseOf(inputs, k, RandomPurpose::kDraw)));
    return tokens;
  }
};

Verifier VerifierOf(const PlantedVerifier& planted) {
  Verifier verifier = RealVerifier();
  verifier.verify = [planted](const VerifyInputs& inputs) {
    return planted.Verify(inputs);
  };
  return verifier;
}

// Drafts have probability 0 in the target, at positions where seed 1 has a u
// below 2^-24. A sampler that converts only the first 24 bits to float32
// accepts them.
double LeastAcceptPValue(const Verifier& verifier) {
  const std::vector<float> logits = {0, 0, -kInf}, drafted = {0, 0, 0};
  const TokenId draft = 2;
  for (const uint32_t position :
       {5836116u, 6475644u, 31942119u, 35041228u, 40963944u}) {
    const auto row = [&](const std::vector<float>& of) {
      return VerifyRow{
          .logits = of,
          .options = {.params = {.seed = 1}, .position = position}};
    };
    const VerifyRow targets[] = {row(logits), row(logits)};
    const VerifyRow draft_row = row(drafted);
    const std::vector<TokenId> tokens =
        verifier.verify({.drafts = {&draft, 1},
                         .target_rows = targets,
                         .draft_rows = {&draft_row, 1}});
    if (tokens[0] == draft) return 0;
  }
  return 1;
}

SpeculationCase CaseAt(float spread, float distance,
                       const SamplingParams& params, int k) {
  SpeculationCase c = {.model = TableModel(5, spread, distance, 31),
                       .params = params,
                       .draft_params = params,
                       .k = k};
  c.params.seed = c.draft_params.seed = 4242;
  return c;
}

SpeculationCase Penalised() {
  SpeculationCase c = CaseAt(1, 0.7f, {}, 3);
  c.processors.repetition_penalty = 1.4f;
  c.processors.frequency_penalty = 0.5f;
  return c;
}

struct Fault {
  const char* name;
  Verifier verifier;
  SpeculationCase c;
  int num_texts;
  // True if 10 standard deviations would show the fault in the same texts.
  bool is_gross = true;
};

Verifier WithoutDraftsInEdits() {
  Verifier verifier = RealVerifier();
  verifier.edits_see_drafts = false;
  return verifier;
}

std::vector<Fault> PlantedFaults() {
  const SamplingParams filters = {.top_k = 3, .top_p = 0.85f};
  return {
      {"recovery with the noise of the draft",
       VerifierOf({.recover = RandomPurpose::kDraft}), CaseAt(1, 0.7f, {}, 2),
       6000},
      {"the same, of a draft near its target",
       VerifierOf({.recover = RandomPurpose::kDraft}), CaseAt(1, 0.3f, {}, 2),
       8000, /*is_gross=*/false},
      {"recovery with the noise of acceptance",
       VerifierOf({.recover = RandomPurpose::kAccept}), CaseAt(1, 0.7f, {}, 2),
       6000},
      {"acceptance with the noise of the draft",
       VerifierOf({.accept = RandomPurpose::kDraft}), CaseAt(1, 0.7f, {}, 2),
       6000},
      {"one u for all of a draft", VerifierOf({.one_uniform_a_draft = true}),
       CaseAt(1, 0.7f, {}, 3), 6000},
      {"p - q by rank", VerifierOf({.residual_by_rank = true}),
       CaseAt(1, 0.7f, {}, 2), 6000},
      {"recovery from p", VerifierOf({.recovery_of_p = true}),
       CaseAt(1, 0.7f, {}, 2), 6000},
      {"the same, of a draft near its target",
       VerifierOf({.recovery_of_p = true}), CaseAt(1, 0.2f, {}, 2), 12000,
       /*is_gross=*/false},
      {"bonus from the draft's row", VerifierOf({.bonus_of_draft = true}),
       CaseAt(1, 0.7f, {}, 2), 6000},
      {"q before filters", VerifierOf({.q_before_filters = true}),
       CaseAt(1, 0.7f, filters, 2), 6000},
      {"edits that do not see drafts", WithoutDraftsInEdits(), Penalised(),
       6000},
  };
}

// One line of the table; the least p-value.
double Report(const Fault& fault, bool* ten_sigma_sees) {
  const SpeculationCounts counted =
      CountTexts(fault.verifier, fault.c, fault.num_texts);
  *ten_sigma_sees = TenSigmaSees(counted);
  const double of_texts = TextsPValue(counted);
  const double of_rate = AcceptancePValue(counted, fault.c);
  const double least_u = LeastAcceptPValue(fault.verifier);
  std::printf("%-42s %10.3g %10.3g %10.3g %10s\n", fault.name, of_texts,
              of_rate, least_u, *ten_sigma_sees ? "sees" : "-");
  return std::min({of_texts, of_rate, least_u});
}

void ReportTitles() {
  std::printf("%-42s %10s %10s %10s %10s\n", "p-values", "texts", "accepted",
              "least u", "10 sigma");
}

TEST(SpeculationFaultsTest, TheRightVerifiersPassAll) {
  ReportTitles();
  for (const Fault& fault : PlantedFaults()) {
    for (const bool planted : {false, true}) {
      const Fault none = {planted ? "no fault, planted" : "no fault",
                          planted ? VerifierOf({}) : RealVerifier(), fault.c,
                          testing::Cases(fault.num_texts / 2, 500)};
      bool ten_sigma_sees = false;
      EXPECT_GE(Report(none, &ten_sigma_sees), kLeastPValue);
      EXPECT_FALSE(ten_sigma_sees);
    }
  }
}

TEST(SpeculationFaultsTest, EveryPlantedFaultFailsOne) {
  ReportTitles();
  int num_missed = 0;
  for (const Fault& fault : PlantedFaults()) {
    bool ten_sigma_sees = false;
    EXPECT_LT(Report(fault, &ten_sigma_sees), kLeastPValue) << fault.name;
    EXPECT_EQ(ten_sigma_sees, fault.is_gross) << fault.name;
    num_missed += !ten_sigma_sees;
  }
  // A u that can be 0 changes one draft of 16 million: no count of texts shows
  // it, at any threshold.
  const Fault least = {"u may be 0", VerifierOf({.float_uniform = true}),
                       CaseAt(1, 0.7f, {}, 2), 6000};
  bool ten_sigma_sees = false;
  EXPECT_LT(Report(least, &ten_sigma_sees), kLeastPValue);
  EXPECT_FALSE(ten_sigma_sees);
  num_missed += !ten_sigma_sees;
  EXPECT_GE(num_missed, 3);
}

}  // namespace
}  // namespace espalier
