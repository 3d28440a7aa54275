#include "executor/host/report_logprobs.h"

#include <optional>
#include <utility>

#include "base/allocating_loop.h"
#include "executor/beam_replay.h"
#include "executor/host/logits_place.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/logprobs/logprobs.h"

namespace espalier {
namespace {

// One row of logits, the tokens queried in it, and the outputs of the queries.
struct LogitsRowWork {
  int logits_row = 0;
  int num_best = 0;
  // Tokens from here on are left out; 0: none.
  int vocab_end = 0;
  // Set if processed log-probabilities are reported: the row's selection and
  // place.
  const PlanSelection* processed = nullptr;
  LogitsPlace place = {};
  // Set if their log-mass is reported.
  std::optional<std::span<const TokenId>> legal = {};
  std::vector<TokenId> tokens = {};
  std::vector<TokenLogProb*> answers = {};  // [tokens]
};

void Ask(TokenId token, TokenLogProb* answer, LogitsRowWork* work) {
  answer->token = token;
  if (token < 0) return;  // kNoToken, kNotANumber
  work->tokens.push_back(token);
  work->answers.push_back(answer);
}

//   logits  of its row
void Answer(const LogitsRowWork& work, const RowLogProbs& row,
            std::span<const float> logits) {
  std::optional<float> legal_log_mass;
  if (work.legal) legal_log_mass = LogMassOf(logits, *work.legal);
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    work.answers[i]->legal_log_mass = legal_log_mass;
    work.answers[i]->log_prob = row.tokens[i].log_prob;
    work.answers[i]->rank = row.tokens[i].rank;
    work.answers[i]->best = row.best;
  }
}

// Returns the processed log-probabilities of a row, by which its tokens are
// chosen.
std::vector<float> ValuesOf(const PlanSelection& selection,
                            const LogitsPlace& place,
                            std::span<const float> logits) {
  const SelectionParams& params = *selection.params;
  std::vector<TokenEdit> storage;
  const RowView row =
      RowAt(selection, *EditsOf(params), place, logits, &storage);
  return TokenValues(
      row.logits,
      {.domain = params.domain,
       .draw = {.params = params.sampling,
                .repetition_penalty = params.processors.repetition_penalty,
                .edits = row.edits.edits,
                .is_allow_list = row.edits.is_allow_list},
       .renormalizes = params.processors.renormalizes});
}

// Processed log-probabilities of a beam's row need not be normalised. They are
// reported without normalisation.
RowLogProbs ProcessedLogProbs(const LogitsRowWork& work,
                              std::span<const float> logits) {
  const std::vector<float> values =
      ValuesOf(*work.processed, work.place, logits);
  RowLogProbs row = LogProbsOfRow(values, work.tokens, work.num_best);
  for (size_t i = 0; i < work.tokens.size(); ++i) {
    row.tokens[i].log_prob = values[work.tokens[i]];
  }
  for (TokenScore& best : row.best) best.log_prob = values[best.token];
  return row;
}

void AnswerAll(const StepPlan& plan, std::span<const LogitsRowWork> works,
               std::span<const float> logits, int vocab_size,
               ThreadPool& pool) {
  AllocatingLoop(pool, static_cast<int>(works.size()), [&](int i) {
    const LogitsRowWork& work = works[i];
    if (work.tokens.empty() || plan.stop.stop_requested()) return;
    const auto row =
        logits.subspan(size_t{1} * work.logits_row * vocab_size,
                       work.vocab_end > 0 ? work.vocab_end : vocab_size);
    Answer(work,
           work.processed != nullptr
               ? ProcessedLogProbs(work, row)
               : LogProbsOfRow(row, work.tokens, work.num_best),
           row);
  });
}

// Adds queries for the steps of a beam search that draft paths decided.
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

// Returns the places of all rows of logits of the selection, in order.
std::vector<LogitsPlace> PlacesOf(const PlanSelection& selection) {
  const std::span<const std::vector<TokenId>> drafts = selection.drafts();
  std::vector<LogitsPlace> places;
  for (int row = 0; row < selection.num_plan_rows(); ++row) {
    const size_t num_drafted = drafts.empty() ? 0 : drafts[row].size();
    for (size_t depth = 0; depth <= num_drafted; ++depth) {
      places.push_back({.row = row,
                        .depth = static_cast<int>(depth),
                        .logits_row = static_cast<int>(places.size())});
    }
  }
  return places;
}

void AddLogitsRows(const PlanSelection& selection, SelectionResult* result,
                   std::vector<LogitsRowWork>* works) {
  const size_t first = works->size();
  const bool is_processed = selection.params->reports_processed;
  for (const LogitsPlace& place : PlacesOf(selection)) {
    works->push_back({.logits_row = selection.first_logits + place.logits_row,
                      .num_best = selection.params->num_logprobs,
                      .processed = is_processed ? &selection : nullptr,
                      .place = place});
    if (selection.params->reports_legal_mass) {
      works->back().legal = selection.allowed.at(place.logits_row);
    }
  }
  if (selection.has_paths()) {
    return AskReplayed(selection, result, std::span(*works).subspan(first));
  }
  result->logprobs.resize(result->candidates.size());
  const SmallVector<int> first_logits = selection.FirstLogits();
  int logits_row = 0;  // index among the selection's rows of logits
  for (size_t i = 0; i < result->candidates.size(); ++i) {
    const Candidate& candidate = result->candidates[i];
    // Consecutive verified tokens of a sample are in consecutive rows of
    // logits.
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
      const int logits_row = scoring.first_logits + static_cast<int>(i);
      const bool is_text =
          scoring.alignment != nullptr &&
          scoring.tokens[i] < scoring.alignment->num_text_tokens;
      const int vocab_end = is_text ? scoring.alignment->num_text_tokens : 0;
      // Consecutive scorings may be of the same row.
      const bool is_same = !works.empty() &&
                           works.back().logits_row == logits_row &&
                           works.back().num_best == scoring.num_logprobs &&
                           works.back().vocab_end == vocab_end;
      if (!is_same) {
        works.push_back({.logits_row = logits_row,
                         .num_best = scoring.num_logprobs,
                         .vocab_end = vocab_end});
      }
      Ask(scoring.tokens[i], &result.logprobs[i], &works.back());
    }
  }
  AnswerAll(plan, works, logits, vocab_size, pool);
  return results;
}

}  // namespace espalier
