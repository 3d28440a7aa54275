// GroupDrafts: the drafts of one group's sequences: their source, the number of
// tokens that each step drafts, and the statistics of acceptance. The source is
// a drafter for each sequence (speculate/drafter.h), or the executor's draft
// model. The group (beam/sequence_group.h) feeds the drafts and has them
// verified.
//
//   from history                       from a draft model
//   Draft(...)    for the next step    OnAsk(...)   -> StepPlan::drafting
//                                      Take(...)    <- StepResult::drafts
//                                      Draft(...)   for the next step
//   Record, Advance                    Record, Advance
//
// Drafts that are made in the step that verifies them are never here, only
// their numbers: OnMadeInStep, Record.
//
// The beams of a search are drafted together. From history each beam has one
// chain, and from a draft model the paths that its own search takes. A step
// then verifies paths (path_rows.h). One drafted token counts for all beams
// together, and is accepted if the next beams of the search are all on drafts.
//
// Belongs to its group's strand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "beam/drafts/draft_replay.h"
#include "beam/drafts/path_rows.h"
#include "exec_request/step_plan.h"
#include "request/generation_params.h"
#include "speculate/draft_length.h"
#include "speculate/drafter.h"
#include "speculate/speculation_figures.h"

namespace espalier {

// Room in a step beyond one token of each sequence.
struct DraftRoom {
  int num_tokens = 0;
  // Rows of logits; a token uses GroupDrafts::num_logits_per_token of them.
  int num_logits = std::numeric_limits<int>::max();
  int64_t num_pages = 0;
  bool may_ask = true;  // may request drafts of a draft model
  // As StepLimits::max_drafted_length.
  int max_length = std::numeric_limits<int>::max();
};

// A requested draft.
struct RequestedDraft {
  int rank = 0;
  int num_tokens = 0;  // at most
};

class GroupDrafts {
 public:
  // Default costs, relative to a step, of one more token in the step and of one
  // token of a draft model.
  static constexpr double kRowCost = 0.05;
  static constexpr double kModelCost = 0.1;
  static constexpr int kMaxDoublings = 6;

  // For a strategy that supports drafts; otherwise nothing is drafted.
  //   drafter  holds the prompt; null: nothing is drafted from history. Beside
  //            a draft model, which is asked where this one drafts nothing
  GroupDrafts(const GenerationParams& params, bool supports_drafts,
              std::unique_ptr<Drafter> drafter);

  // True if the request always drafts, or one drafted token of all sequences
  // can be worth its default cost. Otherwise nothing is drafted.
  static bool MayPay(const GenerationParams& params);
  // True if acceptance depends on the logits of a draft model.
  // REQUIRES: params.speculate.
  static bool DrawsFromModel(const GenerationParams& params);

  // can_draft(): steps may ever have drafts. is_on(): the next step may.
  // Without can_draft() the group acts as one that does not speculate.
  bool can_draft() const { return is_by_model_ || !drafters_.empty(); }
  bool is_on() const { return num_tokens_ > 0; }
  // True if drafts are sampled, from logits that come with them.
  bool are_drawn() const { return is_by_model_ && drafts_count_; }
  // Rows of logits needed to verify a token. A sampled token also needs the row
  // that it was sampled from.
  int num_logits_per_token() const { return are_drawn() ? 2 : 1; }

  bool is_by_model() const { return is_by_model_; }
  // True if drafts are from history, which Advance extends; or, beside a draft
  // model, the tokens that a constraint forces.
  bool reads_history() const { return !drafters_.empty(); }
  // True if the drafter of a rank has a token. REQUIRES: reads_history().
  bool HasHistory(int rank) const;

  // Sets the current costs of drafts, relative to a step. If results depend on
  // the drafts (SpeculationMode::kRejection), they must not depend on the other
  // running requests, so kRowCost and kModelCost stay in use.
  void SetCost(const DraftCost& cost) {
    if (drafts_count_) return;
    row_cost_ = cost.row / rows_at_first_;  // cost of one row
    model_cost_ = cost.draft;
    wait_cost_ = cost.wait;
  }

  // True if drafts of a draft model are to be requested before the next step.
  // If it had none for any sequence, because it failed or lacks pages, the next
  // requests are delayed by a growing number of steps: none the first time,
  // then 1, 2, 4 and so on up to 2^kMaxDoublings. A draft model that is behind
  // (DraftedTokens::is_behind) is not delayed. If no step verifies its drafts,
  // it drafts every other step.
  bool has_to_ask() const {
    return is_by_model_ && is_on() && state_ == State::kIdle &&
           num_steps_alone_ == 0;
  }
  // True if the step after one that requests drafts, or that drafts ahead, may
  // draft before that one's result arrives. Requires a draft model that has
  // drafts.
  bool can_go_on() const {
    return is_by_model_ && is_on() && state_ != State::kReady &&
           num_steps_alone_ == 0;
  }
  // Records if a step that makes its drafts had any.
  void OnMadeInStep(bool has_drafts) { CountAnswer(!has_drafts); }
  // Turns drafts off for all later steps.
  void TurnOff() {
    is_by_model_ = false;
    drafters_.clear();
    num_tokens_ = 0;
    ready_.clear();
    state_ = State::kIdle;
  }
  // True if drafts were requested and have not arrived.
  bool is_waiting() const { return state_ == State::kRequested; }
  // True if drafts for the next step have arrived.
  bool has_answer() const { return state_ == State::kReady; }
  // Largest draft length of each sequence.
  int num_tokens() const { return num_tokens_; }
  // Records a request, by rank, ascending.
  void OnAsk(std::vector<RequestedDraft> asked) {
    state_ = State::kRequested;
    asked_ = std::move(asked);
  }
  // Largest draft length in the next step (SampleDrafts::max_tokens).
  int max_draft_tokens() const {
    return are_drawn() ? std::min(num_tokens_, max_asked_tokens())
                       : num_tokens_;
  }
  // Checks that `drafts` match the request, in its order. Errors: kInternal if
  // they do not; they come from the executor.
  absl::Status Validate(std::span<const DraftedTokens> drafts,
                        int vocab_size) const;
  // Stores the drafts. REQUIRES: Validate.
  void Take(std::span<DraftedTokens> drafts);

  // Returns the tokens to feed after the last one of each sequence.
  //   max_tokens  [sequences]  limit of each, by rank
  //   num_tokens  limit of all together
  std::vector<std::vector<TokenId>> Draft(std::span<const int> max_tokens,
                                          int num_tokens) const;
  // Returns paths that beams may take, each of at most `max_tokens` tokens.
  //   num_beams  live beams
  std::vector<BeamPath> DraftPaths(int num_beams, int max_tokens) const;
  // Returns the logits that `drafts` were sampled from (SampleDrafts::logits);
  // none if they were not sampled, or came without logits.
  // REQUIRES: Draft returned the drafts, before truncation at their ends.
  std::vector<DraftLogits> Logits(
      std::span<const std::vector<TokenId>> drafts) const;
  // Called when the step is planned, with drafts to verify or without. Releases
  // a draft model's drafts and their logits; only the plan holds them then.
  void OnPlan(bool verifies) {
    if (state_ == State::kReady) EndAnswer(verifies);
  }

  // Records a step's result. For each sample of the step, by rank: the tokens
  // drafted; how many of them were accepted, which determines the next draft
  // length; and the tokens that the sample got, which are fewer if it ended
  // within its draft.
  //   num_drafted, num_accepted, num_tokens  [samples]; the first may be empty
  void Record(std::span<const int> num_drafted,
              std::span<const int> num_accepted,
              std::span<const int> num_tokens);
  // Records a step whose rows fed paths of beams; `replay` is null if it had
  // none.
  void RecordPaths(const DraftReplay* replay);
  // Records a step that had no room to verify drafts of up to `num_drafted`
  // tokens.
  void RecordUnverified(int num_drafted);
  // Extends the drafters: the next sequences are children of ranks `parents`,
  // each with its `tokens` appended. Throws std::bad_alloc; then the group must
  // be dropped. REQUIRES: reads_history().
  void Advance(std::span<const int> parents,
               std::span<const std::vector<TokenId>> tokens);

  // Records a step in which none of `num_sequences` sequences had a verified
  // draft.
  void RecordUndrafted(int num_sequences) {
    for (int i = 0; i < num_sequences; ++i) figures_.Record(0, 0, 1);
  }
  // Returns the counts of steps recorded since the last call.
  SpeculationFigures TakeFigures() { return std::exchange(figures_, {}); }

  int64_t num_drafted() const { return num_drafted_; }
  int64_t num_accepted() const { return num_accepted_; }

 private:
  enum class State { kIdle, kRequested, kReady };  // drafts of a draft model

  int max_asked_tokens() const;  // per sequence
  // Count a reply of a draft model, and a step's result.
  void CountAnswer(bool is_empty);
  void EndAnswer(bool verifies);
  void CountStep();
  DraftCost Cost() const {
    return {.row = row_cost_ * rows_per_token_,
            .draft = is_by_model_ ? model_cost_ : 0,
            .wait = wait_cost_};
  }

  // Members that each step reads are adjacent.
  int num_tokens_ = 0;  // length of the next drafts
  State state_ = State::kIdle;
  bool is_by_model_ = false;
  bool drafts_count_ = false;  // sampled results depend on drafts
  std::vector<std::unique_ptr<Drafter>> drafters_;  // by rank
  double row_cost_ = kRowCost;
  double model_cost_ = kModelCost;
  double wait_cost_ = 0;
  // Tokens that a step feeds for each drafted token: 1 for samples. For beams a
  // moving average, which begins at one for each beam.
  double rows_per_token_ = 1;
  double rows_at_first_ = 1;
  DraftLength length_;
  // Draft models without drafts: consecutive empty replies, and steps until the
  // next request.
  int num_empty_answers_ = 0;
  int num_steps_alone_ = 0;
  std::vector<RequestedDraft> asked_;
  std::vector<DraftedTokens> ready_;  // by rank
  bool is_counted_ = false;           // the current reply is counted
  SpeculationFigures figures_;
  int64_t num_drafted_ = 0;
  int64_t num_accepted_ = 0;
};

}  // namespace espalier
