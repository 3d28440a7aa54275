#include "executor/host/report_logprobs.h"

#include <utility>

#include "base/allocating_loop.h"
#include "executor/beam_replay.h"
#include "kernels/logprobs/logprobs.h"

namespace espalier {
namespace {

// One row of logits, the tokens it is asked about, and where its answers go.
struct LogitsRowWork {
  int logits_row = 0;
  int num_best = 0;
  std::vector<TokenId> tokens = {};
  std::vector<TokenLogProb*> answers = {};  // [tokens]
};

void Ask(TokenId token, TokenLogProb* answer, LogitsRowWork* work) {
  answer->token = token;
  if (token < 0) return;  // kNoToken, kNotANumber
  work->tokens.push_back(token);
  work->answers.push_back(answer);
}

void Answer(const LogitsRowWork& work, const RowLogProbs& row) {
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    work.answers[i]->log_prob = row.tokens[i].log_prob;
    work.answers[i]->rank = row.tokens[i].rank;
    work.answers[i]->best = row.best;
  }
}

void AnswerAll(const StepPlan& plan, std::span<const LogitsRowWork> works,
               std::span<const float> logits, int vocab_size,
               ThreadPool& pool) {
  AllocatingLoop(pool, static_cast<int>(works.size()), [&](int i) {
    const LogitsRowWork& work = works[i];
    if (work.tokens.empty() || plan.stop.stop_requested()) return;
    const auto row =
        logits.subspan(size_t{1} * work.logits_row * vocab_size, vocab_size);
    Answer(work, LogProbsOfRow(row, work.tokens, work.num_best));
  });
}

// Of the steps of a beam search that drafted paths decided.
void AskReplayed(const PlanSelection& selection, SelectionResult* result,
                 std::span<LogitsRowWork> works) {
  const DraftTree tree(selection);
  ForEachReplayedStep(selection, tree, result,
                      [&](SelectionResult* step, std::span<const int> nodes) {
                        step->logprobs.resize(step->candidates.size());
                        for (size_t i = 0; i < step->candidates.size(); ++i) {
                          const Candidate& candidate = step->candidates[i];
                          Ask(candidate.token, &step->logprobs[i],
                              &works[tree.logits_row(nodes[candidate.beam])]);
                        }
                      });
}

void AddLogitsRows(const PlanSelection& selection, SelectionResult* result,
                   std::vector<LogitsRowWork>* works) {
  const size_t first = works->size();
  for (int i = 0; i < selection.num_logits(); ++i) {
    works->push_back({.logits_row = selection.first_logits + i,
                      .num_best = selection.params->num_logprobs});
  }
  if (selection.has_paths()) {
    return AskReplayed(selection, result, std::span(*works).subspan(first));
  }
  result->logprobs.resize(result->candidates.size());
  const SmallVector<int> first_logits = selection.FirstLogits();
  int logits_row = 0;  // of the selection
  for (size_t i = 0; i < result->candidates.size(); ++i) {
    const Candidate& candidate = result->candidates[i];
    // Of a run of verified tokens, each is of the next row of logits.
    const bool goes_on = !result->num_tokens.empty() && i > 0 &&
                         result->candidates[i - 1].beam == candidate.beam;
    if (!goes_on) {
      logits_row = first_logits[candidate.beam] - selection.first_logits;
    }
    Ask(candidate.token, &result->logprobs[i], &works->at(first + logits_row));
    ++logits_row;
  }
}

}  // namespace

void ReportLogProbs(const StepPlan& plan, std::span<const float> logits,
                    int vocab_size, ThreadPool& pool,
                    std::vector<SelectionResult>* results) {
  std::vector<LogitsRowWork> works;
  for (size_t s = 0; s < plan.selections.size(); ++s) {
    const PlanSelection& selection = plan.selections[s];
    if (selection.params->num_logprobs < 0) continue;
    AddLogitsRows(selection, &results->at(s), &works);
  }
  AnswerAll(plan, works, logits, vocab_size, pool);
}

std::vector<PromptLogprobsResult> ScoreAll(const StepPlan& plan,
                                           std::span<const float> logits,
                                           int vocab_size, ThreadPool& pool) {
  std::vector<PromptLogprobsResult> results;
  results.reserve(plan.scorings.size());
  std::vector<LogitsRowWork> works;
  for (const PlanPromptLogprobs& scoring : plan.scorings) {
    PromptLogprobsResult& result = results.emplace_back();
    result.request = scoring.request;
    result.logprobs.resize(scoring.tokens.size());
    for (size_t i = 0; i < scoring.tokens.size(); ++i) {
      LogitsRowWork& work = works.emplace_back(LogitsRowWork{
          .logits_row = scoring.first_logits + static_cast<int>(i),
          .num_best = scoring.num_logprobs});
      Ask(scoring.tokens[i], &result.logprobs[i], &work);
    }
  }
  AnswerAll(plan, works, logits, vocab_size, pool);
  return results;
}

}  // namespace espalier
