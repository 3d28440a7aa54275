// GroupScoring: the tokens of a request whose log-probabilities are asked for
// rather than generated: those of the prompt (prompt_logprobs, or an alignment,
// which has scores of attention besides), and those of continuations
// (beam/continuation_walk.h), for requests that only score. It owns the walk
// and the log-probabilities that have arrived, adds the scorings to plans and
// takes their results, in the order of plans.
//
// A prompt token is scored by the row of logits of the token before it, so a
// fed prompt token needs no logits if that row has been there before, or if its
// next token is not reported. Tokens of the prompt are scored before those of
// continuations, even within a plan.
//
// Belongs to its group's strand.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/token_log_prob.h"
#include "beam/continuation_walk.h"
#include "beam/group_plan_writer.h"
#include "beam/pages/group_pages.h"
#include "exec_request/step_plan.h"
#include "request/request.h"

namespace espalier {

class GroupScoring {
 public:
  // The request and pages outlive this.
  //   walk  null: the request generates
  GroupScoring(RequestId id, const Request* request, GroupPages* pages,
               std::unique_ptr<ContinuationWalk> walk);

  // True if the request generates nothing.
  bool only_scores() const { return walk_ != nullptr; }
  bool scores_prompt() const {
    return request_->params.prompt_logprobs.has_value();
  }

  // The prompt. Its first NumWithoutLogits() tokens need no logits any more.
  int64_t NumWithoutLogits() const;
  // Number of such tokens that are not fed yet.
  int64_t NumNextWithoutLogits() const;
  // Returns how many of its `num_tokens` tokens from `first` on need logits.
  // The last token of a prompt has no next token.
  int NumLogits(int first, int num_tokens) const;
  // Adds the scoring of the tokens after the last `num_logits_rows` fed ones.
  void AddPrompt(int first_logits, int num_logits_rows, StepPlan* plan) const;

  // Continuations. REQUIRES, from here to Walk: only_scores().
  // Largest number of tokens that one of its rows of logits scores.
  int max_asked_at_once() const { return walk_->max_asked_at_once(); }
  bool all_planned() const { return walk_->all_planned(); }
  bool has_begun() const { return walk_->has_begun(); }
  int64_t num_pending_tokens() const { return walk_->num_pending_tokens(); }
  // Returns the tokens after the prompt that are fed to the next row.
  std::span<const TokenId> stem() const { return walk_->stem(); }
  // Returns the pages that the prompt and the longest continuation need beyond
  // those that are held.
  int64_t NumPagesLeft() const;
  // Returns the pages that Walk takes for `max_tokens`, for its first row.
  int64_t NumPagesForStep(int max_tokens) const;
  // Begins to walk: adds the scorings of the prompt's last row of logits.
  void Begin(int logits_row, StepPlan* plan);
  // Removes the rows of the last step and truncates the stem to where the next
  // rows begin. REQUIRES: has_begun().
  void Rewind(StepPlan* plan);
  // Rewinds, and adds the next rows and their scorings.
  //   num_pages  for rows beside the first
  // Errors: as GroupPages::AppendRows. REQUIRES: has_begun(), !all_planned().
  absl::Status Walk(int max_tokens, int max_asked, int max_rows,
                    int64_t num_pages, GroupPlanWriter* writer, StepPlan* plan);

  // Takes the log-probabilities of the `num_tokens` tokens that a plan scored.
  // Scores of attention are moved where all tokens are scored at once, and
  // otherwise held twice at most.
  // Errors: kInternal if they are for other tokens.
  absl::Status Take(PromptLogprobsResult&& result, size_t num_tokens,
                    int vocab_size);

  // Moves what was scored to `*result`. REQUIRES: all results were taken.
  void FillResult(Result* result);

 private:
  // Returns the number of log-probabilities of the prompt that are reported.
  int64_t NumPromptLogprobs() const;
  absl::Status TakePrompt(PromptLogprobsResult&& result, size_t num_tokens,
                          int vocab_size);
  absl::Status TakeAttention(std::vector<float>&& scores, size_t num_tokens);
  absl::Status TakeWalked(const PromptLogprobsResult& result, size_t num_tokens,
                          int vocab_size);
  // Adds the tokens after a node to the scorings of a row of logits.
  void AddWalked(ContinuationWalk::Node node, int logits_row,
                 StepPlan* plan) const;

  const RequestId id_;
  const Request* const request_;
  GroupPages* const pages_;
  const std::unique_ptr<ContinuationWalk> walk_;
  std::vector<TokenLogProb> prompt_logprobs_;  // so far
  std::vector<float> attention_scores_;        // with an alignment
};

}  // namespace espalier
