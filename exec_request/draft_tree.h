// DraftTree: the drafted paths of a beam search (PlanSelection::ranks) as one
// tree. Its nodes stand for the rows of logits that a step has, each once: a
// beam, or a beam and some tokens of a path. Rows of one beam whose paths begin
// alike share nodes.
//
//   row 0: beam 0, 5 7       beam 0 --5--> . --7--> .
//   row 1: beam 0, 5 8                     . --8--> .
//   row 2: beam 1            beam 1
//
// Where all beams of a step stand on nodes, the step is evaluated: that is how
// the executor goes on after the first one, and the group follows it.
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

  // Of the rows that continue beams `ranks` by `drafts`.
  // REQUIRES: `ranks` are in [0, num_beams), ascending, each at least once.
  DraftTree(int num_beams, std::span<const int> ranks,
            std::span<const std::vector<TokenId>> drafts);
  explicit DraftTree(const PlanSelection& selection)
      : DraftTree(selection.num_rows, selection.ranks, selection.drafts) {}

  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // Tokens of the longest path.
  int max_depth() const { return max_depth_; }

  // The nodes of the beams, by rank.
  std::vector<int> Roots() const;
  // After `token`; kNone if no path goes there.
  int Child(int node, TokenId token) const;

  // The first row that has the node: of two nodes of one depth, never the same.
  int row(int node) const { return nodes_[node].row; }
  // Tokens of its row's draft that are after it.
  int depth(int node) const { return nodes_[node].depth; }
  // Its row of logits, of the selection's.
  int logits_row(int node) const {
    return first_logits_rows_[nodes_[node].row] + nodes_[node].depth;
  }

  // The nodes of the beams that `candidates` of the beams at `nodes` make; by
  // rank, the candidates being those of indices `surviving`. Empty if one of
  // them is not on a path, or there is none.
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
  std::vector<Node> nodes_;  // the beams', then the others
  std::map<std::pair<int, TokenId>, int> children_;
  std::vector<int> first_logits_rows_;  // [rows], of the selection's
};

}  // namespace espalier
