// The log-probabilities that executors on the host report with a step's
// answers: those of chosen tokens, and those of a prompt's tokens
// (kernels/logprobs/logprobs.h). All threads of a pool compute them, and only
// for requests that ask for them.
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
