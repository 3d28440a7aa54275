// DraftsInFlight: the drafts that a group's sequences feed after their last
// tokens in the running step, and the draft lengths of a step planned ahead of
// its result. DraftReplay has the drafted paths of beams.
//
//   Feed(drafts)      the running step verifies these
//   FeedAhead(count)  the step after it drafts at most `count` per sequence
//   Take(result)      the running step has its result; the next one runs
//
// The group never has the tokens of a draft that was planned ahead. The result
// has only the numbers of drafted and accepted tokens.
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
  // True if the running step verifies no drafts.
  bool empty() const { return drafted_.empty() && num_running_ == 0; }
  // Drafts of the running step, by rank, if they were known when it was
  // planned.
  const std::vector<std::vector<TokenId>>& drafted() const { return drafted_; }
  // Largest draft length of each sequence if the running step was planned
  // ahead; else 0.
  int num_running() const { return num_running_; }
  // True if each sequence has a known draft.
  bool has_all() const;
  // Largest number of tokens of a sequence that the step may accept. REQUIRES:
  // !empty().
  int MaxAccepted(int rank) const {
    return num_running_ > 0 ? num_running_
                            : static_cast<int>(drafted_[rank].size());
  }

  void Feed(std::vector<std::vector<TokenId>> drafts) {
    drafted_ = std::move(drafts);
  }
  void FeedAhead(int num_tokens) { num_ahead_ = num_tokens; }

  // Checks the numbers of drafted tokens in the result of a running step that
  // was planned ahead. Errors: kInternal.
  absl::Status CheckNumDrafted(const SelectionResult& result,
                               int num_sequences) const;
  // Returns stand-ins for the drafts of such a step, by rank: the result's
  // tokens, padded with zeros to the drafted length.
  static std::vector<std::vector<TokenId>> DraftedAhead(
      const SelectionResult& result, int num_sequences);

  // Counts by rank; empty if there were no drafts.
  struct Counts {
    std::vector<int> drafted;
    std::vector<int> planned;  // drafted tokens whose pages are held
    bool were_ahead = false;
  };
  // Applies the result of the running step.
  Counts Take(const SelectionResult& result);

 private:
  std::vector<std::vector<TokenId>> drafted_;
  int num_running_ = 0;
  int num_ahead_ = 0;
};

}  // namespace espalier
