// Compares how often samples of requests begin with each text with the exact
// probability of every such beginning: the first tokens of many samples, run by
// a scheduler as an engine runs them (drafts, verification, preemption and
// all). The model is a ToyModel that reads two tokens back, so a beginning's
// probability is a product of a few numbers.
//
//   const TextStatistics statistics({.method = SpeculationMethod::kDraft,
//   ...}); EXPECT_GE(statistics.Count().p_value, kLeastPValue);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec_request/model.h"
#include "exec_request/step_executor.h"
#include "exec_request/step_plan.h"
#include "request/request.h"
#include "tests/toy_model.h"

namespace espalier::testing {

// A fault planted in an executor. Each function is called once per step.
struct ExecutorFault {
  // On the planner's plan; on the drafts, before they are in the plan; and on
  // the plan that runs. The last two only where no executor runs.
  std::function<void(StepPlan*)> change_plan = [](StepPlan*) {};
  std::function<void(std::span<DraftedTokens>)> change_drafts = [](auto&&...) {
  };
  std::function<void(StepPlan*)> change_filled_plan = [](StepPlan*) {};
  // `logits` are the model's, of the plan's rows; none where an executor runs.
  std::function<void(const StepPlan&, std::span<const float> logits,
                     StepResult*)>
      change_result = [](auto&&...) {};
};

// A fault: each draft is judged with the logits of the one after it.
void ShiftDraftLogits(StepPlan* plan);

struct TextCase {
  // With `speculate`; max_new_tokens and seed are set here.
  GenerationParams params;
  int num_texts = 2500;
  int num_pages = 4000;
  int max_step_tokens = 1 << 14;
  int max_new_tokens = 6;
  float draft_distance = 0.4f;  // draft model's (blended_model.h)
  uint32_t first_seed = 1;
  // Plans run when they are written; a result is read once this many have run.
  size_t plans_in_flight = 1;
};

struct TextCounts {
  double p_value = 0;
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  int64_t num_preemptions = 0;
};

// Number of compared tokens of each text. The first is sampled by the prompt's
// step, which has no drafts.
inline constexpr int kCountedTokens = 4;
inline constexpr int kToyVocabSize = 4;  // EOS included, which is 0

// Runs requests of params.num_return_sequences samples each, all of them
// together, until there are num_texts texts.
TextCounts CountTexts(const TextCase& c, const ExecutorFault& fault = {});

// Models of CountTexts, for an executor of one's own; pages as in TextCase.
std::shared_ptr<Model> MakeTextModel();
std::shared_ptr<Model> MakeTextDraftModel(float distance = 0.4f);

// As CountTexts, but `executor`, made of these models, runs the steps.
TextCounts CountTextsOn(StepExecutor& executor, const TextCase& c,
                        const ExecutorFault& fault = {});

// Returns the probability of each beginning of kCountedTokens tokens, where
// kToyVocabSize stands for positions after the end; the last position varies
// fastest.
std::vector<double> EnumerateBeginnings(const Request& request);

// Index of a beginning in the result of EnumerateBeginnings.
size_t CellOf(std::span<const TokenId> tokens);

}  // namespace espalier::testing
