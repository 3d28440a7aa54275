// BeamStrategy against a second implementation of the reference's rules, on
// random toy language models: the same tokens, order, scores and number of
// steps, bit for bit.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "beam/strategy/beam_strategy.h"
#include "tests/beam/reference_beam_search.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::LanguageModel;
using testing::ReferenceBeamSearch;
using testing::ReferenceResult;
using testing::ToyModelOptions;

ToyModelOptions AnyModel() {
  ToyModelOptions options;
  options.vocab_size = *rc::gen::inRange(2, 25);
  options.seed = *rc::gen::arbitrary<uint64_t>();
  options.eos_boost = *rc::gen::element(-2.0f, 0.0f, 1.0f, 2.0f, 4.0f);
  options.eos_token_ids = {*rc::gen::inRange(0, options.vocab_size)};
  const TokenId second = *rc::gen::inRange(0, options.vocab_size);
  if (second != options.eos_token_ids[0] && second % 2 == 0) {
    options.eos_token_ids.push_back(second);
  }
  return options;
}

GenerationParams AnyParams(const ToyModelOptions& options) {
  GenerationParams params;
  params.num_beams = *rc::gen::inRange(1, 6);
  params.num_return_sequences = *rc::gen::inRange(1L, params.num_beams + 1);
  params.max_new_tokens = *rc::gen::inRange(1, 15);
  params.length_penalty = *rc::gen::element(-1.0, 0.0, 0.6, 1.0, 2.0);
  params.length_penalty_form =
      *rc::gen::element(LengthPenaltyForm::kPower, LengthPenaltyForm::kPower,
                        LengthPenaltyForm::kWu);
  params.early_stopping = *rc::gen::element(
      EarlyStopping::kFalse, EarlyStopping::kTrue, EarlyStopping::kNever);
  params.eos_token_id = std::vector<int64_t>(options.eos_token_ids.begin(),
                                             options.eos_token_ids.end());
  return params;
}

void AssertSame(const std::vector<Hypothesis>& ours,
                const std::vector<Hypothesis>& theirs) {
  RC_ASSERT(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    RC_ASSERT(ours[i].tokens == theirs[i].tokens);
    RC_ASSERT(ours[i].score == theirs[i].score);
    RC_ASSERT(ours[i].cum_log_prob == theirs[i].cum_log_prob);
    RC_ASSERT(ours[i].finish_reason == theirs[i].finish_reason);
  }
}

float SumOfLogProbs(const LanguageModel& model,
                    const std::vector<TokenId>& tokens) {
  float sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += model(std::span(tokens).first(i))[tokens[i]];
  }
  return sum;
}

// Checks the invariants of any result.
void AssertLawful(const LanguageModel& model, const GenerationParams& params,
                  const std::vector<Hypothesis>& hypotheses) {
  RC_ASSERT(!hypotheses.empty());
  RC_ASSERT(hypotheses.size() <= params.num_return_sequences);
  std::set<std::vector<TokenId>> distinct;
  for (const Hypothesis& hypothesis : hypotheses) {
    RC_ASSERT(hypothesis.score <= hypotheses.front().score);
    RC_ASSERT(hypothesis.cum_log_prob ==
              SumOfLogProbs(model, hypothesis.tokens));
    RC_ASSERT(distinct.insert(hypothesis.tokens).second);
    RC_ASSERT(hypothesis.tokens.size() <= *params.max_new_tokens);
    for (size_t i = 0; i < hypothesis.tokens.size(); ++i) {
      const auto& eos = *params.eos_token_id;
      const bool is_eos =
          std::count(eos.begin(), eos.end(), hypothesis.tokens[i]) > 0;
      const bool is_last = i + 1 == hypothesis.tokens.size();
      RC_ASSERT(!is_eos || is_last);
      RC_ASSERT(!is_last || is_eos ||
                hypothesis.tokens.size() == *params.max_new_tokens);
    }
  }
}

RC_GTEST_PROP(ReferenceParityTest, BeamsAreThoseOfTheReference, ()) {
  const ToyModelOptions options = AnyModel();
  const GenerationParams params = AnyParams(options);
  const LanguageModel model = testing::ToyLanguageModel(options, {1});
  BeamStrategy strategy(params);
  const absl::StatusOr<int> num_steps = testing::SearchAlone(model, &strategy);
  RC_ASSERT(num_steps.ok());
  const std::vector<Hypothesis> hypotheses = strategy.Hypotheses();
  AssertLawful(model, params, hypotheses);
  const ReferenceResult reference = ReferenceBeamSearch(model, params);
  RC_CLASSIFY(reference.copies_finished, "the reference returns copies");
  RC_CLASSIFY(*num_steps < *params.max_new_tokens, "ends early");
  if (reference.copies_finished) return;
  RC_ASSERT(*num_steps == reference.num_steps);
  AssertSame(hypotheses, reference.hypotheses);
}

}  // namespace
}  // namespace espalier
