// DraftsInFlight: what a group's sequences feed after their last tokens in the
// step that runs, and how many tokens a draft model may draft for the one
// planned ahead of its answer. Drafted paths of beams are DraftReplay's.
//
//   Feed(drafts)      the step that runs verifies these
//   FeedAhead(count)  the one after it, of as many a sequence as this
//   Take(result)      the first is answered, so the second runs
//
// Of a step that was planned ahead the group never has the tokens, but only,
// from its answer, the numbers that were drafted and accepted.
//
// Belongs to its group's strand.
#pragma once

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "exec_request/step_plan.h"

namespace espalier {

class DraftsInFlight {
 public:
  // Whether the step that runs verifies none.
  bool empty() const { return drafted_.empty() && num_running_ == 0; }
  // What it verifies, by rank, if that was known when it was planned.
  const std::vector<std::vector<TokenId>>& drafted() const { return drafted_; }
  // What each sequence drafts at most, if it was planned ahead; else 0.
  int num_running() const { return num_running_; }
  // Whether each sequence has a draft that was known.
  bool has_all() const;
  // Tokens that the step may accept of a sequence. REQUIRES: !empty().
  int MaxAccepted(int rank) const {
    return num_running_ > 0 ? num_running_
                            : static_cast<int>(drafted_[rank].size());
  }

  void Feed(std::vector<std::vector<TokenId>> drafts) {
    drafted_ = std::move(drafts);
  }
  void FeedAhead(int num_tokens) { num_ahead_ = num_tokens; }

  // Of the step that runs, if it was planned ahead, with so many sequences:
  // whether its answer can have drafted so many tokens. Errors: kInternal.
  absl::Status CheckNumDrafted(const SelectionResult& result,
                               int num_sequences) const;
  // What it drafted, by rank, of which the answer has the numbers and what was
  // accepted; the rest is 0.
  static std::vector<std::vector<TokenId>> DraftedAhead(
      const SelectionResult& result, int num_sequences);

  // By rank, or none if there were no drafts.
  struct Counts {
    std::vector<int> drafted;
    std::vector<int> planned;  // of which pages are held
    bool were_ahead = false;
  };
  // The step that runs is answered.
  Counts Take(const SelectionResult& result);

 private:
  std::vector<std::vector<TokenId>> drafted_;
  int num_running_ = 0;
  int num_ahead_ = 0;
};

}  // namespace espalier
