// With beams enough for every continuation, beam search is exhaustive search:
// the n best of all sequences, whatever the length penalty, as long as it only
// ends when nothing can improve ("never").
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "beam/strategy/beam_strategy.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::LanguageModel;
using testing::ToyModelOptions;

// All sequences that end in an EOS, of which the first `num_eos` tokens are, or
// have `max_length` tokens.
void Enumerate(const LanguageModel& model, int max_length, int num_eos,
               const LengthPenalty& penalty, const Hypothesis& prefix,
               std::vector<Hypothesis>* all) {
  const std::vector<float> log_probs = model(prefix.tokens);
  for (size_t token = 0; token < log_probs.size(); ++token) {
    Hypothesis next = prefix;
    next.tokens.push_back(static_cast<TokenId>(token));
    next.cum_log_prob += log_probs[token];
    const int length = static_cast<int>(next.tokens.size());
    if (static_cast<int>(token) < num_eos || length == max_length) {
      next.score = penalty.Score(next.cum_log_prob, length);
      all->push_back(next);
    } else {
      Enumerate(model, max_length, num_eos, penalty, next, all);
    }
  }
}

std::vector<Hypothesis> BestOfAll(const LanguageModel& model, int max_length,
                                  const LengthPenalty& penalty,
                                  int num_eos = 1) {
  std::vector<Hypothesis> all;
  Enumerate(model, max_length, num_eos, penalty, Hypothesis(), &all);
  std::stable_sort(all.begin(), all.end(),
                   [](const Hypothesis& a, const Hypothesis& b) {
                     return a.score > b.score;
                   });
  return all;
}

// Live beams never outnumber their continuations at the last step.
int64_t NumContinuations(int vocab_size, int max_length, int num_eos = 1) {
  int64_t num_beams = vocab_size;
  for (int i = 1; i < max_length; ++i) num_beams *= vocab_size - num_eos;
  return num_beams;
}

using Form = std::pair<LengthPenaltyForm, double>;

void ExpectExhaustive(const ToyModelOptions& options, int max_length,
                      const Form& form, bool pool_may_fill) {
  const LanguageModel model = testing::ToyLanguageModel(options, {});
  GenerationParams params;
  std::tie(params.length_penalty_form, params.length_penalty) = form;
  const std::vector<Hypothesis> all =
      BestOfAll(model, max_length, LengthPenalty(params));
  params.num_beams = pool_may_fill
                         ? NumContinuations(options.vocab_size, max_length)
                         : static_cast<int64_t>(all.size()) + 1;
  params.num_return_sequences = params.num_beams;
  params.max_new_tokens = max_length;
  params.eos_token_id = {0};
  params.early_stopping =
      pool_may_fill ? EarlyStopping::kNever : EarlyStopping::kTrue;
  BeamStrategy strategy(params);
  ASSERT_OK(testing::SearchAlone(model, &strategy));
  const std::vector<Hypothesis> found = strategy.Hypotheses();
  ASSERT_EQ(found.size(), std::min<size_t>(all.size(), params.num_beams));
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].tokens, all[i].tokens) << "hypothesis " << i;
    EXPECT_EQ(found[i].score, all[i].score);
  }
}

// With patience for more hypotheses than exist, the search ends when no beam is
// live, and has kept the best of all, whichever ids end them.
TEST(PatientSearchTest, PatienceForAllSequencesFindsTheBest) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int num_eos = 1; num_eos <= 3; ++num_eos) {
      const int vocab_size = 2 + num_eos;
      const LanguageModel model = testing::ToyLanguageModel(
          {.vocab_size = vocab_size, .seed = seed, .eos_token_ids = {0}}, {});
      GenerationParams params;
      params.num_beams = NumContinuations(vocab_size, 4, num_eos);
      params.num_return_sequences = 5;
      params.max_new_tokens = 4;
      params.eos_token_id.emplace();
      for (int eos = 0; eos < num_eos; ++eos) {
        params.eos_token_id->push_back(eos);
      }
      params.early_stopping = EarlyStopping::kTrue;
      const std::vector<Hypothesis> all =
          BestOfAll(model, 4, LengthPenalty(params), num_eos);
      params.patience = static_cast<double>(all.size() + 1) / params.num_beams;
      BeamStrategy strategy(params);
      ASSERT_OK(testing::SearchAlone(model, &strategy));
      const std::vector<Hypothesis> found = strategy.Hypotheses();
      ASSERT_EQ(found.size(), 5);
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].tokens, all[i].tokens);
      }
    }
  }
}

class ExhaustiveSearchTest : public ::testing::TestWithParam<Form> {};

TEST_P(ExhaustiveSearchTest, NBestIsThatOfAllSequences) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const float eos_boost : {0.0f, 2.0f}) {
      for (const auto& [vocab_size, max_length] :
           {std::pair(2, 6), {3, 4}, {5, 3}, {7, 1}}) {
        ExpectExhaustive({.vocab_size = vocab_size,
                          .seed = seed,
                          .eos_token_ids = {0},
                          .eos_boost = eos_boost},
                         max_length, GetParam(), /*pool_may_fill=*/true);
      }
    }
  }
}

TEST_P(ExhaustiveSearchTest, APoolForAllSequencesTakesThemAll) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    ExpectExhaustive({.vocab_size = 3, .seed = seed, .eos_token_ids = {0}}, 4,
                     GetParam(), /*pool_may_fill=*/false);
  }
}

INSTANTIATE_TEST_SUITE_P(LengthPenalties, ExhaustiveSearchTest,
                         ::testing::Values(Form(LengthPenaltyForm::kPower, -1),
                                           Form(LengthPenaltyForm::kPower, 0),
                                           Form(LengthPenaltyForm::kPower, 0.6),
                                           Form(LengthPenaltyForm::kPower, 1),
                                           Form(LengthPenaltyForm::kPower, 2),
                                           Form(LengthPenaltyForm::kWu, -0.5),
                                           Form(LengthPenaltyForm::kWu, 0.6),
                                           Form(LengthPenaltyForm::kWu, 1),
                                           Form(LengthPenaltyForm::kWu, 3)));

}  // namespace
}  // namespace espalier
