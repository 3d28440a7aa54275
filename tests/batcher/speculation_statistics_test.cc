// Speculation end to end leaves the distribution of texts as it is: the joint
// distribution of the first tokens of samples that drafts were verified for,
// against its exact enumeration. And each fault that an executor may have along
// that way is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sample/random.h"
#include "kernels/verify/verify.h"
#include "tests/batcher/text_statistics.h"
#include "tests/few_cases.h"
#include "tests/p_value.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

struct Filter {
  const char* name;
  std::function<void(GenerationParams*)> set;
};

// Parameters that change the distribution of a request.
const std::vector<Filter>& Filters() {
  static const std::vector<Filter> filters = {
      {"Plain", [](GenerationParams*) {}},
      {"Cold", [](GenerationParams* p) { p->temperature = 0.6; }},
      {"TopK", [](GenerationParams* p) { p->top_k = 3; }},
      {"TopP", [](GenerationParams* p) { p->top_p = 0.85; }},
      {"MinP",
       [](GenerationParams* p) {
         p->min_p = 0.15;
         p->temperature = 0.6;
       }},
      {"Penalties",
       [](GenerationParams* p) {
         p->repetition_penalty = 1.3;
         p->frequency_penalty = 0.4;
         p->presence_penalty = 0.3;
       }},
      {"Eos", [](GenerationParams* p) { p->ignore_eos = false; }},
      {"ColdEos",
       [](GenerationParams* p) {
         p->ignore_eos = false;
         p->temperature = 0.6;
         p->min_new_tokens = 2;
       }},
      {"Allowed",
       [](GenerationParams* p) {
         p->allowed_token_ids = {0, 1, 3};
         p->ignore_eos = false;
       }},
      {"All",
       [](GenerationParams* p) {
         p->ignore_eos = false;
         p->temperature = 0.6;
         p->top_k = 3;
         p->top_p = 0.95;
         p->frequency_penalty = 0.5;
         p->logit_bias = {{1, 0.7}};
       }},
  };
  return filters;
}

using Method = SpeculationMethod;
using Mode = SpeculationMode;

TextCase CaseOf(Method method, Mode mode, int num_tokens,
                const Filter& filter) {
  TextCase c;
  c.params.do_sample = true;
  c.params.ignore_eos = true;
  c.params.speculate = {method, num_tokens, mode};
  // One text at a time, a few that share their prompt, or many.
  c.params.num_return_sequences = num_tokens % 3 == 0 ? 1 : 1 << num_tokens / 2;
  c.max_new_tokens = 5 + num_tokens / 2;
  c.first_seed = 1000 * num_tokens;
  filter.set(&c.params);
  return c;
}

struct Source {
  Method method;
  Mode mode;
};

class SpeculationStatisticsTest : public ::testing::TestWithParam<Source> {};

TEST_P(SpeculationStatisticsTest, TextsAreDistributedAsTheModelHasThem) {
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  int64_t num_texts = 0;
  for (int num_tokens = 1; num_tokens <= 8; ++num_tokens) {
    for (size_t i = num_tokens % 2; i < Filters().size(); i += 2) {
      const Filter& filter = Filters()[i];
      SCOPED_TRACE(std::string(filter.name) + ", " +
                   std::to_string(num_tokens) + " tokens");
      TextCase c =
          CaseOf(GetParam().method, GetParam().mode, num_tokens, filter);
      c.num_texts = Cases(c.num_texts, 150);
      const TextCounts counted = CountTexts(c);
      EXPECT_GE(counted.p_value, kLeastPValue);
      EXPECT_GT(counted.num_drafted, c.num_texts / 8);
      num_texts += c.num_texts;
      num_drafted += counted.num_drafted;
      num_accepted += counted.num_accepted;
    }
  }
  // Drafts are both accepted and rejected, or nothing is tested.
  EXPECT_GT(num_accepted, num_texts / 4);
  EXPECT_LT(num_accepted, num_drafted * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(
    All, SpeculationStatisticsTest,
    ::testing::Values(Source{Method::kDraft, Mode::kRejection},
                      Source{Method::kDraft, Mode::kCoupled},
                      Source{Method::kNgram, Mode::kRejection},
                      Source{Method::kSuffix, Mode::kRejection},
                      Source{Method::kSuffix, Mode::kCoupled}),
    [](const auto& test) {
      return std::string(NameOf(test.param.method)) + "_" +
             std::string(NameOf(test.param.mode));
    });

// Groups are preempted in the middle of their texts, with drafts under way.
TEST(SpeculationStatisticsTest, PreemptionLeavesTheDistribution) {
  for (const Method method : {Method::kDraft, Method::kNgram}) {
    for (const Mode mode : {Mode::kRejection, Mode::kCoupled}) {
      TextCase c = CaseOf(method, mode, 4, Filters()[1]);
      c.num_texts = Cases(3000, 300);
      c.num_pages = 40;
      c.max_step_tokens = 60;
      c.max_new_tokens = 12;
      const TextCounts counted = CountTexts(c);
      EXPECT_GE(counted.p_value, kLeastPValue);
      EXPECT_GT(counted.num_preemptions, c.num_texts / 20);
      EXPECT_GT(counted.num_accepted, c.num_texts / 4);
    }
  }
}

// Drafts from the unfiltered distribution, which are verified as if they came
// from the filtered one.
void DraftBeforeFilters(StepPlan* plan) {
  for (DraftSequence& sequence : plan->drafting) {
    auto params = std::make_shared<SelectionParams>(*sequence.params);
    params->sampling = {.temperature = params->sampling.temperature,
                        .seed = params->sampling.seed};
    sequence.params = std::move(params);
  }
}

void LeaveOutEos(std::span<DraftedTokens> drafts) {
  for (DraftedTokens& draft : drafts) {
    if (draft.tokens.empty() || draft.tokens.back() != 0) continue;
    draft.tokens.pop_back();
    draft.logits = draft.logits.First(draft.logits.size() - kToyVocabSize);
  }
}

TokenId DrawFrom(const std::vector<double>& p, double uniform) {
  TokenId last = 0;
  double sum = 0;
  for (TokenId token = 0; token < kToyVocabSize; ++token) {
    if (p[token] == 0) continue;
    last = token;
    sum += p[token];
    if (sum > uniform) break;
  }
  return last;
}

// Samples the token after rejected drafts again, with `purpose`.
void RecoverWith(RandomPurpose purpose, const StepPlan& plan,
                 std::span<const float> logits, StepResult* result) {
  for (size_t i = 0; i < plan.selections.size(); ++i) {
    const PlanSelection& selection = plan.selections[i];
    const DrawSelection* const draws = selection.as_draws();
    if (draws == nullptr || draws->drafts.logits.empty()) continue;
    const SampleDrafts& drafts = draws->drafts;
    const SmallVector<int> first_logits = selection.FirstLogits();
    int end = 0;  // end of the row's candidates
    for (int row = 0; row < selection.num_rows; ++row) {
      const int length = result->selections[i].num_tokens[row];
      end += length;
      if (length > std::ssize(drafts.tokens[row])) continue;
      const auto line = [&](std::span<const float> of, int idx) {
        return VerifyRow{
            .logits = of.subspan(idx * kToyVocabSize, kToyVocabSize),
            .options = {.params = selection.params->sampling}};
      };
      const int first = first_logits[row] + length - 1;
      const VerifyRow target = line(logits, first);
      const VerifyRow draft = line(drafts.logits[row].values(), length - 1);
      const RandomKey key = {
          .seed = selection.params->sampling.seed,
          .sample = static_cast<uint32_t>(draws->samples[row]),
          .position = static_cast<uint32_t>(selection.num_generated_of(row) +
                                            length - 1),
          .purpose = purpose};
      result->selections[i].candidates[end - 1].token =
          DrawFrom(reference::VerifyPositionOf(target, &draft,
                                               drafts.tokens[row][length - 1])
                       .Recovery(),
                   Uniform(key, 0));
    }
  }
}

ExecutorFault RecoveryWith(RandomPurpose purpose) {
  ExecutorFault fault;
  fault.change_result = [purpose](const StepPlan& plan,
                                  std::span<const float> logits,
                                  StepResult* result) {
    RecoverWith(purpose, plan, logits, result);
  };
  return fault;
}

struct PlantedFault {
  const char* name;
  ExecutorFault fault;
  const char* filter;
};

std::vector<PlantedFault> PlantedFaults() {
  ExecutorFault before_filters, another_row, no_eos;
  before_filters.change_plan = DraftBeforeFilters;
  another_row.change_filled_plan = ShiftDraftLogits;
  no_eos.change_drafts = LeaveOutEos;
  return {
      {"recovery with the noise of the draft",
       RecoveryWith(RandomPurpose::kDraft), "Plain"},
      {"recovery with the noise of acceptance",
       RecoveryWith(RandomPurpose::kAccept), "Plain"},
      {"q before filters", before_filters, "TopK"},
      {"logits of another row", another_row, "Plain"},
      {"a draft without the EOS that was drawn", no_eos, "Eos"},
  };
}

TextCounts CountWith(const PlantedFault& planted, const ExecutorFault& fault,
                     int num_texts) {
  const auto filter = std::ranges::find(
      Filters(), std::string_view(planted.filter), &Filter::name);
  TextCase c = CaseOf(Method::kDraft, Mode::kRejection, 4, *filter);
  c.num_texts = num_texts;
  return CountTexts(c, fault);
}

TEST(SpeculationStatisticsTest, EveryPlantedFaultIsSeen) {
  for (const PlantedFault& planted : PlantedFaults()) {
    // These need all texts to be seen.
    if (FewCases() && planted.name != PlantedFaults()[0].name) break;
    SCOPED_TRACE(planted.name);
    const TextCounts counted = CountWith(planted, planted.fault, 12000);
    EXPECT_LT(counted.p_value, kLeastPValue);
    std::printf("%-42s %10.3g\n", planted.name, counted.p_value);
  }
}

// Otherwise a planted fault could be found for another reason.
TEST(SpeculationStatisticsTest, WhatPlantsAFaultIsNone) {
  for (const PlantedFault& planted : PlantedFaults()) {
    SCOPED_TRACE(planted.name);
    EXPECT_GE(CountWith(planted, {}, Cases(12000, 500)).p_value, kLeastPValue);
  }
  const PlantedFault none = {"", {}, "Plain"};
  EXPECT_GE(
      CountWith(none, RecoveryWith(RandomPurpose::kRecover), Cases(12000, 500))
          .p_value,
      kLeastPValue);
}

}  // namespace
}  // namespace espalier
