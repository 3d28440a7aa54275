// DraftTree: the drafted paths of a beam search (PathRows) as one tree. A node
// is a beam, or a beam and the first tokens of a path, and has a row of logits
// in the step. Rows of one beam whose paths begin alike share nodes.
//
//   row 0: beam 0, 5 7       beam 0 --5--> . --7--> .
//   row 1: beam 0, 5 8                     . --8--> .
//   row 2: beam 1            beam 1
//
// A step is evaluated if all of its beams are nodes of the tree. So the
// executor advances through the tree after the first step, and the group
// repeats its moves.
//
// Thread safety: constant after construction.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "kernels/logits/candidate.h"

namespace espalier {

class DraftTree {
 public:
  static constexpr int kNone = -1;

  // Builds the tree of rows that continue beams `ranks` by `drafts`. REQUIRES:
  // `ranks` are in [0, num_beams), ascending, each at least once.
  DraftTree(int num_beams, std::span<const int> ranks,
            std::span<const std::vector<TokenId>> drafts);
  // REQUIRES: `selection` is a BeamSelection.
  explicit DraftTree(const PlanSelection& selection)
      : DraftTree(selection.num_rows, selection.as_beams()->paths.ranks,
                  selection.as_beams()->paths.drafts) {}

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // Returns the number of tokens of the longest path.
  int max_depth() const { return max_depth_; }

  // Returns the nodes of the beams, by rank.
  std::vector<int> Roots() const;
  // Returns the node after `token`, or kNone if no path continues with it.
  int Child(int node, TokenId token) const;

  // Returns the first row that has the node. Two nodes of one depth have
  // different rows.
  int row(int node) const { return nodes_[node].row; }
  // Returns the number of tokens of the row's draft up to the node.
  int depth(int node) const { return nodes_[node].depth; }
  // Returns its row of logits, counted from the selection's first.
  int logits_row(int node) const {
    return first_logits_rows_[nodes_[node].row] + nodes_[node].depth;
  }

  // Returns the nodes of the next beams, by rank: the candidates with indices
  // `surviving`, whose parents are the beams at `nodes`. Returns nothing if
  // there are no surviving candidates, or one of them is not on a path.
  std::vector<int> Follow(std::span<const int> nodes,
                          std::span<const Candidate> candidates,
                          std::span<const int> surviving) const;

 private:
  struct Node {
    int row = 0;
    int depth = 0;
  };

  const int num_beams_;
  int max_depth_ = 0;
  std::vector<Node> nodes_;  // beams first
  std::map<std::pair<int, TokenId>, int> children_;
  std::vector<int> first_logits_rows_;  // [rows], within the selection
};

}  // namespace espalier
