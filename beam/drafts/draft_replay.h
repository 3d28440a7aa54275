// DraftReplay: positions of a group's beams on the paths that a step feeds for
// them (path_rows.h), while the results in that step are applied one after the
// other (SelectionResult::further).
//
//   DraftReplay replay(num_beams, rows);
//   ...
//   replay.Follow(beams);          // the next beams, if the next step is there
//   replay.rows();                 // row of each beam
//
// Belongs to its group's strand.
#pragma once

#include <span>
#include <vector>

#include "beam/drafts/path_rows.h"
#include "beam/strategy/decode_strategy.h"
#include "exec_request/draft_tree.h"

namespace espalier {

class DraftReplay {
 public:
  DraftReplay(int num_beams, PathRows rows);

  // Paths that the step verifies.
  const PathRows& drafts() const { return drafts_; }
  const DraftTree& tree() const { return tree_; }
  // Number of steps that the paths may decide after the first, and number of
  // drafted tokens, without duplicates.
  int num_steps_drafted() const { return tree_.max_depth(); }
  int num_tokens_drafted() const { return tree_.num_nodes() - num_beams_; }
  // Additional tokens that the step feeds for each drafted step.
  double num_tokens_per_step() const {
    return 1.0 * drafts_.num_drafted(num_beams_) / num_steps_drafted();
  }
  // Steps and tokens followed so far.
  int num_steps_followed() const { return num_steps_followed_; }
  int num_tokens_followed() const { return num_tokens_followed_; }

  // Advances to the next beams. REQUIRES: all are on paths.
  void Follow(std::span<const Continuation> beams);
  // Returns the row of each beam, by rank; all are different.
  std::vector<int> rows() const;

 private:
  const int num_beams_;
  const PathRows drafts_;
  const DraftTree tree_;
  std::vector<int> nodes_;  // by rank
  int num_steps_followed_ = 0;
  int num_tokens_followed_ = 0;
};

}  // namespace espalier
