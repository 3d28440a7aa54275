// Computes the log-probabilities that executors on the host report with a
// step's results: those of chosen tokens and of prompt tokens
// (kernels/logprobs/logprobs.h). They are computed on all threads of a pool,
// and only for requests with this option.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Fills in `logprobs` of all `*results` with SelectionParams::num_logprobs >=
// 0: for every candidate, because only the strategy decides which of them
// survive. kNoToken and kNotANumber get an entry with the token alone.
//   logits   [plan.num_logits, vocab_size]  f32  host
//   results  [plan.selections]  with their candidates
// Throws std::bad_alloc.
void ReportLogProbs(const StepPlan& plan, std::span<const float> logits,
                    int vocab_size, ThreadPool& pool,
                    std::vector<SelectionResult>* results);

// Returns one result for each of `plan.scorings`. Throws std::bad_alloc.
std::vector<PromptLogprobsResult> ScoreAll(const StepPlan& plan,
                                           std::span<const float> logits,
                                           int vocab_size, ThreadPool& pool);

}  // namespace espalier
