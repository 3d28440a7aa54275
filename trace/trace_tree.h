// TraceTree: one request's trace, checked and ready to be drawn: its candidates
// as a tree, the paths of the winners (the hypotheses returned) lit, its pages
// by step.
//
//   TraceTrees trees;
//   RETURN_IF_ERROR(trees.Add(event));  // each
//   for (const TraceTree& tree : trees.trees()) Draw(tree);
#pragma once

#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "trace/trace.h"

namespace espalier {

struct TraceNode {
  TraceCandidate candidate;
  std::vector<int> children;  // nodes, in the order of events
  // The best hypothesis, 0 the best of all, whose path this lies on; and the
  // one that ends here. -1 if there is none.
  int path_of = -1;
  int end_of = -1;

  bool lit() const { return path_of >= 0; }
  bool kept() const { return candidate.fate == CandidateFate::kKept; }
};

// A request was preempted between two steps.
struct TracePreemption {
  TracePreempted preempted;
  std::optional<TraceResumed> resumed;  // unset if it did not
};

struct TraceTree {
  TraceRequest request;
  std::vector<TraceNode> nodes;
  std::vector<int> first;                    // the nodes after the prompt
  std::vector<std::vector<int>> steps;       // [num_steps], nodes; step 1 first
  std::vector<TracePages> pages;             // steps ascending
  std::vector<TracePreemption> preemptions;  // steps ascending
  std::optional<TraceEnd> end;               // unset if the trace stops before
  int num_slots = 1;

  int num_steps() const { return static_cast<int>(steps.size()); }
  // The nodes on the way to `node`, that one included.
  std::vector<int> Path(int node) const;
};

class TraceTrees {
 public:
  // Errors: kInvalidArgument naming the field, if the event cannot follow those
  // before it. Nothing has changed then.
  absl::Status Add(TraceEvent event);

  // In the order in which the requests began.
  const std::deque<TraceTree>& trees() const { return trees_; }

 private:
  struct Open {
    TraceTree* tree;
    std::unordered_map<int, int> newest_steps;  // by slot, of what lives there
    // Where nodes live that have moved since. No node has a place for good: the
    // next one after it has one of its own.
    std::unordered_map<int, int> moved;

    int SlotOf(int node) const;
  };

  absl::Status AddTo(Open& open, TraceRequest event);
  absl::Status AddTo(Open& open, TraceCandidate event);
  absl::Status AddTo(Open& open, TracePages event);
  absl::Status AddTo(Open& open, TraceEnd event);
  absl::Status AddTo(Open& open, TracePreempted event);
  absl::Status AddTo(Open& open, TraceResumed event);

  std::deque<TraceTree> trees_;
  std::unordered_map<RequestId, Open> open_;
};

}  // namespace espalier
