// GroupDrafts: the drafts of one group's sequences: where they come from (a
// drafter for each sequence, speculate/drafter.h, or the executor's draft
// model, which a step asks), how many tokens each step drafts, and what came of
// it. The group (beam/beam_group.h) feeds the drafts and has them verified.
//
//   from history                       from a draft model
//   Draft(...)    for the next step    OnAsk(...)   -> StepPlan::drafting
//                                      Take(...)    <- StepResult::drafts
//                                      Draft(...)   for the next step
//   Record, Advance                    Record, Advance
//
// Where an executor drafts before the step that asks (drafts_before_steps), a
// step's drafts come with its answer: OnAsk, then Take and TakeForStep, Record.
// Of a step that was planned ahead of an answer only their numbers come:
// TakeAhead, Record.
//
// The beams of a search are drafted for together. From history each has a
// chain, from a draft model the paths that its own search takes; a step then
// verifies paths (path_rows.h). A token ahead is one of every beam, and is
// accepted if the search takes all of its beams on by drafts.
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

// What a step has room for beside a token of each sequence.
struct DraftRoom {
  int num_tokens = 0;
  // Rows of logits; GroupDrafts::num_logits_per_token says what one takes.
  int num_logits = std::numeric_limits<int>::max();
  int64_t num_pages = 0;
  bool may_ask = true;  // a draft model
  // Tokens of a sequence that a draft model can feed
  // (ModelDescription::max_draft_context).
  int max_draft_context = std::numeric_limits<int>::max();
  // Whether the draft model drafts before the step of the plan that asks, which
  // then verifies (ModelDescription::drafts_before_steps).
  bool drafts_before_steps = false;
};

// A draft that a step is asked for.
struct AskedDraft {
  int rank = 0;
  int num_tokens = 0;  // at most
};

class GroupDrafts {
 public:
  // What a token more costs beside a step where nothing better is known, and
  // what a draft model's does.
  static constexpr double kRowCost = 0.05;
  static constexpr double kModelCost = 0.1;
  static constexpr int kMaxDoublings = 6;

  // For a strategy that supports drafts; nothing is drafted for others.
  //   drafter  has the prompt; null: nothing is drafted from history
  GroupDrafts(const GenerationParams& params, bool supports_drafts,
              std::unique_ptr<Drafter> drafter);

  // Whether a token ahead of all sequences can be worth its cost, as far as
  // that is known before any step, or the request drafts always; where not,
  // nothing is drafted.
  static bool MayPay(const GenerationParams& params);

  // Whether steps may ever have drafts; and whether the next one may. If not,
  // it is that of a request that does not speculate.
  bool can_draft() const { return is_by_model_ || !drafters_.empty(); }
  bool is_on() const { return num_tokens_ > 0; }
  // Whether drafts are drawn, from logits that come with them.
  bool are_drawn() const { return is_by_model_ && drafts_count_; }
  // Rows of logits that it takes to verify a token: where it was drawn, the row
  // that it was drawn from as well.
  int num_logits_per_token() const { return are_drawn() ? 2 : 1; }

  bool is_by_model() const { return is_by_model_; }
  // Whether drafts are from history, which Advance tells of.
  bool reads_history() const { return !drafters_.empty(); }

  // What drafts cost now, beside a step. Where results depend on the drafts
  // (SpeculationMode::kRejection) that would make them depend on who else runs,
  // so kRowCost and kModelCost count there.
  void SetCost(const DraftCost& cost) {
    if (drafts_count_) return;
    row_cost_ = cost.row / rows_at_first_;  // that of one row
    model_cost_ = cost.draft;
    wait_cost_ = cost.wait;
  }

  // Whether a draft model is to be asked before the next step. Where it
  // has nothing for any sequence, because it failed or lacks pages, it is left
  // alone for more and more steps: none the first time, then 1, 2, 4 and so on
  // up to 2^kMaxDoublings. One that is behind (DraftedTokens::is_behind) is
  // asked on. Where no step verifies what it has it is asked every other step.
  bool has_to_ask() const {
    return is_by_model_ && is_on() && state_ == State::kIdle &&
           num_steps_alone_ == 0;
  }
  // Whether the step after one that is asked, or that drafts ahead, may draft
  // without its answer: of a draft model that has drafts.
  bool can_go_on() const {
    return is_by_model_ && is_on() && state_ != State::kReady &&
           num_steps_alone_ == 0;
  }
  // A step that was planned ahead had drafts of some sequence, or of none.
  void TakeAhead(bool has_drafts) { CountAnswer(!has_drafts); }
  // No step has drafts any more.
  void TurnOff() {
    is_by_model_ = false;
    drafters_.clear();
    num_tokens_ = 0;
    ready_.clear();
    state_ = State::kIdle;
  }
  // Whether it was asked, and has not answered.
  bool is_waiting() const { return state_ == State::kAsked; }
  // Whether it has, for the next step.
  bool has_answer() const { return state_ == State::kReady; }
  // Of each sequence, at most.
  int num_tokens() const { return num_tokens_; }
  // The drafts that came, by rank, of a step that is under way: it was asked
  // for them itself. REQUIRES: Take.
  std::vector<std::vector<TokenId>> TakeForStep(int num_sequences);
  // By rank, ascending.
  void OnAsk(std::vector<AskedDraft> asked) {
    state_ = State::kAsked;
    asked_ = std::move(asked);
  }
  // Tokens that each draft of the next step could have
  // (PlanSelection::max_draft_tokens).
  int max_draft_tokens() const {
    return are_drawn() ? std::min(num_tokens_, max_asked_tokens())
                       : num_tokens_;
  }
  // Whether the answer, in their order, is one to what was asked.
  // Errors: kInternal if it is not; it comes from the executor.
  absl::Status Validate(std::span<const DraftedTokens> drafts,
                        int vocab_size) const;
  // The answer. REQUIRES: Validate.
  void Take(std::span<DraftedTokens> drafts);

  // Tokens to feed after the last one of each sequence.
  //   max_tokens  [sequences]  of each, by rank
  //   num_tokens  of all together
  std::vector<std::vector<TokenId>> Draft(std::span<const int> max_tokens,
                                          int num_tokens) const;
  // Paths that beams may take, each of at most `max_tokens` tokens.
  //   num_beams  that live
  std::vector<BeamPath> DraftPaths(int num_beams, int max_tokens) const;
  // The logits that these drafts were drawn from (PlanSelection::draft_logits);
  // none if they were not drawn, or came without. REQUIRES: Draft gave them,
  // but for what was cut at their ends.
  std::vector<DraftLogits> Logits(
      std::span<const std::vector<TokenId>> drafts) const;
  // The step is planned, with drafts that it verifies or without. What a draft
  // model answered, with its logits, is kept by the plan alone.
  void OnPlan(bool verifies) {
    if (state_ == State::kReady) EndAnswer(verifies);
  }

  // A step's answer is there. Of each sample that it ran, by rank: what it had
  // drafted, none if nothing of any; how many of these verification accepted,
  // which says how far to draft; and how many tokens the sample got, which are
  // fewer if it ended within its drafts.
  //   num_drafted, num_accepted, num_tokens  [samples]; or the first empty
  void Record(std::span<const int> num_drafted,
              std::span<const int> num_accepted,
              std::span<const int> num_tokens);
  // The same of a step whose rows had paths of beams; or not, as `*replay` or
  // null says.
  void RecordPaths(const DraftReplay* replay);
  // The same of a step that had no room to verify drafts of up to so many
  // tokens.
  void RecordUnverified(int num_drafted);
  // The next sequences are children of these ranks, each with `tokens` more
  // than its parent. Throws std::bad_alloc, and the group must be dropped then.
  // REQUIRES: reads_history().
  void Advance(std::span<const int> parents,
               std::span<const std::vector<TokenId>> tokens);

  // The same of a step in which none of so many sequences had a draft that was
  // verified.
  void RecordUndrafted(int num_sequences) {
    for (int i = 0; i < num_sequences; ++i) figures_.Record(0, 0, 1);
  }
  // Of the steps recorded since the last call.
  SpeculationFigures TakeFigures() { return std::exchange(figures_, {}); }

  int64_t num_drafted() const { return num_drafted_; }
  int64_t num_accepted() const { return num_accepted_; }

 private:
  enum class State { kIdle, kAsked, kReady };  // of a draft model's drafts

  int max_asked_tokens() const;  // of each
  // Of a draft model; and a step is answered.
  void CountAnswer(bool is_empty);
  void EndAnswer(bool verifies);
  void CountStep();
  DraftCost Cost() const {
    return {.row = row_cost_ * rows_per_token_,
            .draft = is_by_model_ ? model_cost_ : 0,
            .wait = wait_cost_};
  }

  // What is read of each group at each step lies together.
  int num_tokens_ = 0;  // that each sequence drafts next
  State state_ = State::kIdle;
  bool is_by_model_ = false;
  bool drafts_count_ = false;                       // for what is drawn
  std::vector<std::unique_ptr<Drafter>> drafters_;  // by rank
  double row_cost_ = kRowCost;
  double model_cost_ = kModelCost;
  double wait_cost_ = 0;
  // That a step feeds for each token ahead: 1 of samples. Of beams an average
  // of the last steps, which begins at one for each beam.
  double rows_per_token_ = 1;
  double rows_at_first_ = 1;
  DraftLength length_;
  // Of a draft model that had nothing: answers in a row, and steps until it is
  // asked again.
  int num_empty_answers_ = 0;
  int num_steps_alone_ = 0;
  std::vector<AskedDraft> asked_;
  std::vector<DraftedTokens> ready_;  // by rank
  bool is_counted_ = false;           // the answer
  SpeculationFigures figures_;
  int64_t num_drafted_ = 0;
  int64_t num_accepted_ = 0;
};

}  // namespace espalier
