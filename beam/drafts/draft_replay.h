// DraftReplay: where the beams of a group stand on the paths that a step feeds
// for them (path_rows.h), while the answers of that step are applied one after
// the other (SelectionResult::further).
//
//   DraftReplay replay(num_beams, rows);
//   ...
//   replay.Follow(beams);          // the next beams, if the next step is there
//   replay.rows();                 // which row each of them has
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

  // What the step verifies.
  const PathRows& drafts() const { return drafts_; }
  const DraftTree& tree() const { return tree_; }
  // Steps that it may decide after its first, and tokens that it drafts, each
  // once.
  int num_steps_drafted() const { return tree_.max_depth(); }
  int num_tokens_drafted() const { return tree_.num_nodes() - num_beams_; }
  // Tokens that it feeds for one step ahead, more than without drafts.
  double num_tokens_per_step() const {
    return 1.0 * drafts_.num_drafted(num_beams_) / num_steps_drafted();
  }
  // Steps and tokens that were followed so far.
  int num_steps_followed() const { return num_steps_followed_; }
  int num_tokens_followed() const { return num_tokens_followed_; }

  // The next beams. REQUIRES: all are on paths.
  void Follow(std::span<const Continuation> beams);
  // The row of each beam, by rank, all different.
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
