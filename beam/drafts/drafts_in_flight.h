// DraftsInFlight: the drafts that a group's sequences feed after their last
// tokens in the running step, and in a step planned ahead of its result.
// DraftReplay has the drafted paths of beams.
//
//   Feed(drafts)       the running step verifies these
//   FeedLater(counts)  it verifies drafts that are made in the step, at most so
//                      many tokens of each sequence
//   FeedAhead(count)   the step after it does so for each live sequence
//   Take(result)       the running step has its result; the next one runs
//
// The group never has the tokens of a draft that is made in its step. The
// result has only the numbers of drafted and accepted tokens.
//
// Belongs to its group's strand.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "exec_request/step_plan.h"

namespace espalier {

class DraftsInFlight {
 public:
  // True if the running step verifies no drafts.
  bool empty() const { return drafted_.empty() && limits_.empty(); }
  // Drafts of the running step, by rank, if they were known when it was
  // planned.
  const std::vector<std::vector<TokenId>>& drafted() const { return drafted_; }
  // True if the running step makes its drafts.
  bool are_made_in_step() const { return !limits_.empty(); }
  // True if it makes one for each sequence.
  bool all_are_made_in_step() const {
    return are_made_in_step() && std::ranges::find(limits_, 0) == limits_.end();
  }
  // Largest number of tokens of a sequence that the step may accept. REQUIRES:
  // !empty().
  int MaxAccepted(int rank) const {
    return are_made_in_step() ? limits_[rank]
                              : static_cast<int>(drafted_[rank].size());
  }

  void Feed(std::vector<std::vector<TokenId>> drafts) {
    drafted_ = std::move(drafts);
  }
  void FeedLater(std::vector<int> counts) { limits_ = std::move(counts); }
  void FeedAhead(int count) { num_ahead_ = count; }

  // Checks the numbers of drafted tokens in the result of a running step that
  // makes its drafts. Errors: kInternal.
  absl::Status CheckNumDrafted(const SelectionResult& result) const;
  // Returns stand-ins for the drafts of such a step, by rank: the result's
  // tokens, padded with zeros to the drafted length.
  static std::vector<std::vector<TokenId>> DraftedInStep(
      const SelectionResult& result, int num_sequences);

  // Counts by rank; empty if there were no drafts.
  struct Counts {
    std::vector<int> drafted;
    std::vector<int> planned;  // drafted tokens whose pages are held
    bool were_made_in_step = false;
  };
  // Applies the result of the running step, which leaves `num_live` sequences.
  Counts Take(const SelectionResult& result, int num_live);

 private:
  std::vector<std::vector<TokenId>> drafted_;
  std::vector<int> limits_;  // by rank; empty: no draft is made
  int num_ahead_ = 0;        // drafted by each in the next step; 0: no plan yet
};

}  // namespace espalier
