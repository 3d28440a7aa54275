// StepPlan and StepResult: one model call, as plain data. The scheduler writes
// a plan, an executor answers with a result; nothing else passes between them,
// so an executor may live on another thread, device or machine, keep state of
// its own for each sequence, and always knows when to drop it.
//
// A plan packs *rows*, one for each sequence that runs:
//
//   tokens   [ row 0: 5 prompt tokens | row 1: 1 | row 2: 1 | ... ]
//   logits   [ row 0: last 1 token    | row 1: 1 | row 2: 1 | ... ]
//
// A row feeds one token (decode) or many (a chunk of a prompt, a resumed
// history, a draft to verify); multi-query evaluation over the page table is
// the one operation. Logits are wanted for the last `num_logits` tokens of a
// row: none for a chunk that does not end its prompt. Tokens and lines of
// logits are in the order of the rows, without gaps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/page_copy.h"
#include "kernels/score_processors.h"
#include "kernels/select.h"

namespace espalier {

// One row of the packed batch.
struct PlanRow {
  SequenceId sequence = {};
  int first_token = 0;     // index in StepPlan::tokens
  int num_tokens = 0;      // >= 1
  int first_position = 0;  // of its first token in the sequence
  int num_logits = 0;      // in [0, num_tokens]
  int first_logits = 0;    // index of its first line of logits
};

// How to select from the logits of one request's rows.
struct PlanSelection {
  RequestId request;
  int first_logits = 0;  // its lines are [first_logits, first_logits + rows)
  int num_rows = 0;      // beams of the group that are alive, in rank order
  int num_candidates = 0;
  ScoreDomain domain = ScoreDomain::kLogProbs;
  int num_generated = 0;             // tokens each of the rows has generated
  std::vector<float> cum_log_probs;  // [num_rows], nats
  // Shared because it is constant for the request's life; null if all is off.
  std::shared_ptr<const ScoreProcessors> processors;
  // Prompt and generated tokens of each row, if the processors need them:
  // [num_rows] or empty.
  std::vector<std::vector<TokenId>> histories;
};

// `child` begins as a copy of `parent`, before the step feeds either.
struct SequenceFork {
  SequenceId parent;
  SequenceId child;
  friend bool operator==(const SequenceFork&, const SequenceFork&) = default;
};

struct StepPlan {
  std::vector<PlanRow> rows;
  std::vector<TokenId> tokens;  // [sum of num_tokens]
  int num_logits = 0;           // lines of logits, sum over rows

  // The rows' block table: row r's pages are page_indices[page_indptr[r],
  // page_indptr[r + 1]), which cover all its positions, the fed ones included.
  std::vector<int> page_indptr = {0};  // [rows + 1]
  std::vector<PageId> page_indices;

  std::vector<PlanSelection> selections;

  // To be done first, in this order; they concern state the executor or the
  // model keeps.
  std::vector<SequenceFork> forks;
  std::vector<SequenceId> finished;  // ended since the last plan
  std::vector<PageCopy> page_copies;

  bool empty() const { return rows.empty(); }
  std::span<const TokenId> row_tokens(const PlanRow& row) const {
    return std::span(tokens).subspan(row.first_token, row.num_tokens);
  }
  std::span<const PageId> row_pages(size_t row) const {
    return std::span(page_indices)
        .subspan(page_indptr[row], page_indptr[row + 1] - page_indptr[row]);
  }
};

// The answer to one PlanSelection.
struct SelectionResult {
  RequestId request;
  std::vector<Candidate> candidates;  // best first; beam is the row's rank
};

struct StepResult {
  std::vector<SelectionResult> selections;  // in the plan's order
  // Where the time went.
  absl::Duration forward_time;
  absl::Duration select_time;
};

}  // namespace espalier
