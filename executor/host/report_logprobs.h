// What executors on the host report beside a step's answers: log-probabilities
// of the tokens that were chosen, and of those that a prompt goes on with
// (kernels/logprobs/logprobs.h), on all threads. Nothing where nobody asked.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Fills in `logprobs` of those of `*results` whose params ask for it: one of
// every candidate, of its own row, for only the strategy knows which will
// live. What stands for a token where there is none gets nothing but itself.
//   logits   [plan.num_logits, vocab_size]  f32  host
//   results  [plan.selections]  with their candidates
// Throws std::bad_alloc.
void ReportLogProbs(const StepPlan& plan, std::span<const float> logits,
                    int vocab_size, ThreadPool& pool,
                    std::vector<SelectionResult>* results);

// One answer for each of `plan.scorings`. Throws std::bad_alloc.
std::vector<PromptLogprobsResult> ScoreAll(const StepPlan& plan,
                                           std::span<const float> logits,
                                           int vocab_size, ThreadPool& pool);

}  // namespace espalier
