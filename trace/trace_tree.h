// TraceTree: one request's trace, checked and ready to be drawn: its candidates
// as a tree, with the paths of the returned hypotheses marked (lit), and its
// pages by step.
//
//   TraceTrees trees;
//   RETURN_IF_ERROR(trees.Add(event));  // each
//   for (const TraceTree& tree : trees.trees()) Draw(tree);
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "trace/trace.h"

namespace espalier {

struct TraceNode {
  TraceCandidate candidate;
  std::vector<int> children;  // nodes, in the order of events
  int path_of =
      -1;           // best hypothesis (0 first) with this on its path; -1: none
  int end_of = -1;  // hypothesis that ends here; -1: none
  // The tokens that were legal after it, if a step chose from them.
  std::optional<TraceLegalRow> legal = {};

  bool lit() const { return path_of >= 0; }
  bool kept() const { return candidate.fate == CandidateFate::kKept; }
};

// A preemption of a request between two steps.
struct TracePreemption {
  TracePreempted preempted;
  std::optional<TraceResumed> resumed;  // unset if it did not resume
};

struct TraceTree {
  TraceRequest request;
  std::vector<TraceNode> nodes;
  std::vector<int> first;                    // the nodes after the prompt
  std::optional<TraceLegalRow> first_legal;  // the tokens legal there
  std::vector<std::vector<int>> steps;       // [num_steps], nodes; step 1 first
  std::vector<TracePages> pages;             // steps ascending
  std::vector<TracePreemption> preemptions;  // steps ascending
  std::optional<TraceEnd> end;               // unset if the trace stops before
  int num_slots = 1;

  int num_steps() const { return static_cast<int>(steps.size()); }
  // Returns the nodes from the root to `node`, which is included.
  std::vector<int> Path(int node) const;
  // Returns the tokens that were legal after a node, or the root; null without
  // a constraint, or if no step chose from them.
  const TraceLegalRow* LegalAfter(int node) const;
};

class TraceTrees {
 public:
  // Adds an event.
  // Errors: kInvalidArgument naming the field, if the event cannot follow the
  // earlier ones. Nothing has changed then.
  absl::Status Add(TraceEvent event);

  // Trees in the order in which the requests began.
  const std::deque<TraceTree>& trees() const { return trees_; }

 private:
  struct Open {
    TraceTree* tree;
    std::unordered_map<int, int> newest_steps;  // by slot, of its last node
    // New slots of nodes that a preemption has moved, by node.
    std::unordered_map<int, int> moved;
    // The tokens after a node whose legal ones are counted.
    std::unordered_map<int, std::unordered_set<TokenId>> legal;

    int SlotOf(int node) const;
  };

  absl::Status AddTo(Open& open, TraceRequest event);
  absl::Status AddTo(Open& open, TraceCandidate event);
  absl::Status AddTo(Open& open, TracePages event);
  absl::Status AddTo(Open& open, TraceEnd event);
  absl::Status AddTo(Open& open, TracePreempted event);
  absl::Status AddTo(Open& open, TraceResumed event);
  absl::Status AddTo(Open& open, TraceLegal event);

  std::deque<TraceTree> trees_;
  std::unordered_map<RequestId, Open> open_;
};

}  // namespace espalier
