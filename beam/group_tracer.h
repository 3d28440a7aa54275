// GroupTracer: records what a group does in a trace sink (trace/trace.h). It
// gives every candidate its place in the tree: strategies have nodes of the
// candidates alone that go on or finish.
//
// Belongs to its group and its strand.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "beam/pages/group_pages.h"
#include "beam/pages/group_prefill.h"
#include "beam/strategy/decode_strategy.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"
#include "request/request.h"
#include "trace/trace.h"

namespace espalier {

class GroupTracer {
 public:
  // `request` begins, of which the caller gave the first `num_prompt_tokens`
  // tokens. `sink` outlives this.
  GroupTracer(RequestId id, const Request& request, int64_t num_prompt_tokens,
              TraceSink* sink);

  // The group shares pages of the prefix tree, some of them as `copies`: what
  // it held, and holds.
  void RecordMatch(std::span<const HeldPages> before,
                   std::span<const HeldPages> after,
                   std::span<const PageCopy> copies);
  // Of the next step.
  void RecordCopies(std::span<const PageCopy> copies);
  // All pages are given back; from now on a sequence's slot is its rank.
  //   slots_by_rank  where the sequences live
  void RecordPreemption(std::span<const HeldPages> slots,
                        std::span<const int> slots_by_rank,
                        const PrefillCounts& counts);

  // The next step's answer is there: what was held while it ran.
  void RecordPages(std::span<const HeldPages> slots, const PagePool& pool,
                   const PrefillCounts& counts);

  // What the strategy made of it.
  //   parents    [rows]   slots, by rank
  //   sequences  by rank  that live on; empty if the group is done
  //   slots      [sequences]  where they live
  void RecordStep(const SelectionResult& answer,
                  std::span<const Decision> decisions,
                  std::span<const int> parents,
                  std::span<const Continuation> sequences,
                  std::span<const int> slots);

  // The request is answered. Hypotheses are those that steps finished, or,
  // where it was ended early, sequences that lived after the last step.
  void RecordEnd(const absl::StatusOr<Result>& result);

 private:
  // The slots of sequences that live on, by parent's rank and token.
  using Slots = std::multimap<std::pair<int, TokenId>, int>;

  TraceCandidate Describe(const Candidate& candidate,
                          const Decision& decision) const;
  // Assigns a slot in the trace to each sequence that lives on a row of drafts:
  // its own slot is behind those of the search (GroupPages) until the step's
  // last answer. It gets one that is free, its parent's if that is.
  //   parents  [rows]  slots in the trace, by rank
  std::map<int, int> AssignTraceSlots(std::span<const int> parents,
                                      std::span<const Continuation> sequences,
                                      std::span<const int> slots) const;
  int TraceSlotOf(int slot) const;
  // Gives a candidate that was kept the slot its sequence lives in.
  void TakeSlot(const std::pair<int, TokenId>& sequence, Slots* free,
                TraceCandidate* event);
  void Remember(const TraceCandidate& event, const Decision& decision);
  // Takes out the node of a sequence that lives and whose path is `tokens`.
  std::optional<int> TakeLiving(std::span<const TokenId> tokens);
  // Whether the path to `node` is `tokens`.
  bool IsPath(int node, std::span<const TokenId> tokens) const;

  // What is remembered of a candidate.
  struct Node {
    int parent = kTraceRoot;
    TokenId token = 0;
    float cum_log_prob = 0;
    int step = 0;  // tokens on its path
  };

  const RequestId id_;
  const int num_slots_;
  TraceSink* const sink_;
  int step_ = 0;             // of the longest path
  int pages_step_ = 0;       // of the last event of pages
  std::set<PageId> cached_;  // found in the prefix tree
  std::vector<TraceCopy> copies_;
  std::optional<PrefillCounts>
      preempted_;  // while preempted, and until it has pages
  std::vector<Node> nodes_;
  std::vector<int> tree_nodes_;     // by the strategy's node
  std::map<int, int> living_;       // slot to node
  std::map<int, int> trace_slots_;  // slot to that in the trace, if it differs
  std::vector<TraceHypothesis> finished_;
};

}  // namespace espalier
