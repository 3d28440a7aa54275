// Texts of speculative decoding are distributed as the target's: the joint
// distribution of their first three tokens against its enumeration.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/few_cases.h"
#include "tests/kernels/verify/speculation_checks.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::kLeastPValue;

struct NamedCase {
  std::string name;
  SpeculationCase c;
};

ScoreProcessors Penalties() {
  ScoreProcessors processors;
  processors.repetition_penalty = 1.4f;
  processors.frequency_penalty = 0.5f;
  processors.presence_penalty = 0.3f;
  return processors;
}

// Each filter, at both temperatures; with a draft that has the same params, or
// others.
std::vector<NamedCase> SomeCases(int k) {
  const struct {
    const char* name;
    SamplingParams params;
    bool penalties = false;
    bool plain_draft = false;
  } kFilterKinds[] = {
      {"plain", {}},
      {"top_k", {.top_k = 3}},
      {"top_p", {.top_p = 0.8f}},
      {"min_p", {.min_p = 0.15f}},
      {"typical_p", {.typical_p = 0.8f}},
      {"penalties", {}, true},
      {"all", {.min_p = 0.02f, .top_k = 4, .top_p = 0.9f}, true, false},
      {"filters of the target alone", {.top_k = 3, .top_p = 0.9f}, false, true},
  };
  std::vector<NamedCase> cases;
  for (const auto& kind : kFilterKinds) {
    // One temperature each for a k, in turn.
    const float temperature = (cases.size() + k) % 2 == 0 ? 1.0f : 0.6f;
    const int vocab_size = 3 + static_cast<int>(cases.size() + k / 2) % 4;
    SpeculationCase c = {
        .model = TableModel(vocab_size, 1.0f, 0.7f, 100 * k + vocab_size),
        .params = kind.params,
        .k = k};
    c.params.temperature = temperature;
    c.params.seed = 7000 + 100 * k + cases.size();
    c.draft_params = c.params;
    if (kind.plain_draft) {
      c.draft_params = {.temperature = 0.8f, .seed = c.params.seed};
    }
    if (kind.penalties) c.processors = Penalties();
    cases.push_back({kind.name, std::move(c)});
  }
  return cases;
}

// Long drafts take longest, and their texts end in the first ones.
int NumTexts(int k) { return Cases(k <= 3 ? 9000 : 3000, 400); }

class SpeculationDistributionTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DraftLengths, SpeculationDistributionTest,
                         ::testing::Range(1, 9),
                         ::testing::PrintToStringParamName());

void ExpectTexts(const Verifier& verifier, const NamedCase& named,
                 int num_texts, bool has_rate) {
  const SpeculationCounts counted = CountTexts(verifier, named.c, num_texts);
  const double p = TextsPValue(counted);
  const double of_rate = has_rate ? AcceptancePValue(counted, named.c) : 1;
  std::printf("%-28s %d tokens, accepted %.3f: p-values %.3g %.3g\n",
              named.name.c_str(), named.c.model.vocab_size(),
              1.0 * counted.num_first_accepted / num_texts, p, of_rate);
  EXPECT_GE(p, kLeastPValue) << named.name;
  EXPECT_GE(of_rate, kLeastPValue) << named.name;
}

TEST_P(SpeculationDistributionTest, RejectionGivesTheTargetsTexts) {
  for (const NamedCase& named : SomeCases(GetParam())) {
    ExpectTexts(RealVerifier(), named, NumTexts(GetParam()), /*has_rate=*/true);
  }
}

TEST_P(SpeculationDistributionTest, RejectionOfAFixedDraftDoesToo) {
  std::vector<NamedCase> cases = SomeCases(GetParam());
  for (size_t i = GetParam() % 2; i < cases.size(); i += 2) {
    cases[i].c.draft_kind = DraftKind::kText;
    ExpectTexts(RealVerifier(), cases[i], NumTexts(GetParam()),
                /*has_rate=*/false);
  }
}

// Draft and target draw with the same noise, so nothing depends on the draft.
TEST_P(SpeculationDistributionTest, CoupledTextsAreThoseWithoutDrafts) {
  for (NamedCase& named : SomeCases(GetParam())) {
    named.c.mode = VerifyMode::kCoupled;
    SpeculationCase plain = named.c;
    plain.k = 0;
    for (uint32_t sample = 0; sample < 300; ++sample) {
      const Verifier verifier = RealVerifier(VerifyMode::kCoupled);
      EXPECT_EQ(Speculation(named.c, verifier, sample).Run(),
                Speculation(plain, verifier, sample).Run());
    }
  }
}

}  // namespace
}  // namespace espalier
