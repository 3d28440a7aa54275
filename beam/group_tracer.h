// GroupTracer: records a group's events in a trace sink (trace/trace.h). It
// assigns a tree node to every candidate; strategies only have nodes for
// candidates that continue or finish.
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
#include "beam/strategy/stopping_criteria.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"
#include "request/request.h"
#include "trace/trace.h"

namespace espalier {

class GroupTracer {
 public:
  // Starts the trace of `request`, for which the caller gave `prompt`. `sink`
  // outlives the tracer.
  GroupTracer(RequestId id, const Request& request,
              std::span<const TokenId> prompt, TraceSink* sink);

  // Records that the group shares pages of the prefix tree, some of them as
  // `copies`: the pages held before and after.
  void RecordMatch(std::span<const HeldPages> before,
                   std::span<const HeldPages> after,
                   std::span<const PageCopy> copies);
  // Records the copies of the next step.
  void RecordCopies(std::span<const PageCopy> copies);
  // Records that all pages are released. From now on a sequence's slot is its
  // rank.
  //   slots_by_rank  slots of the sequences before
  void RecordPreemption(std::span<const HeldPages> slots,
                        std::span<const int> slots_by_rank,
                        const PrefillCounts& counts);

  // Records the pages held during a step whose result has arrived.
  void RecordPages(std::span<const HeldPages> slots, const PagePool& pool,
                   const PrefillCounts& counts);

  // Records the tokens that were legal in a step whose result has arrived.
  //   criteria  of the request, which has a constraint; outlives the tracer
  //   live      [rows]  progress of the sequences before the result, by rank
  //   parents   [rows]  their slots
  void RecordLegal(const StoppingCriteria& criteria,
                   std::vector<StoppingCriteria::Progress> live,
                   const SelectionResult& answer, std::span<const int> parents);

  // Records the strategy's decisions on the result.
  //   parents    [rows]   slots, by rank
  //   sequences  sequences that continue, by rank; empty if the group is done
  //   slots      [sequences]  their slots
  void RecordStep(const SelectionResult& answer,
                  std::span<const Decision> decisions,
                  std::span<const int> parents,
                  std::span<const Continuation> sequences,
                  std::span<const int> slots);

  // Records the request's result. Its hypotheses were finished by steps or, if
  // it ended early, were live sequences after the last step.
  void RecordEnd(const absl::StatusOr<Result>& result);

 private:
  // Slots of continuing sequences, by parent's rank and token.
  using Slots = std::multimap<std::pair<int, TokenId>, int>;

  TraceCandidate Describe(const Candidate& candidate,
                          const Decision& decision) const;
  // Assigns a slot in the trace to each sequence that lives on a row of drafts:
  // until the step's last result, its own slot is beyond those of the search
  // (GroupPages). Takes a free one, preferably its parent's.
  //   parents  [rows]  slots in the trace, by rank
  std::map<int, int> AssignTraceSlots(std::span<const int> parents,
                                      std::span<const Continuation> sequences,
                                      std::span<const int> slots) const;
  int TraceSlotOf(int slot) const;
  // Returns the row of a sequence that ends with `node`, and of which
  // `candidate` (-1: none) of the result is a continuation.
  TraceLegalRow DescribeLegal(const StoppingCriteria::Progress& progress,
                              int node, const SelectionResult& answer,
                              int candidate) const;
  // Records the tokens that were legal after a draft token, which is candidate
  // `idx` of the result: the next candidate is one of them.
  void RecordLegalAfterDraft(int idx, int node, const SelectionResult& answer);
  // Assigns to a kept candidate the slot of its sequence.
  void TakeSlot(const std::pair<int, TokenId>& sequence, Slots* free,
                TraceCandidate* event);
  void Remember(const TraceCandidate& event, const Decision& decision);
  // Removes and returns the node of a live sequence whose path is `tokens`.
  std::optional<int> TakeLiving(std::span<const TokenId> tokens);
  // True if the path to `node` is `tokens`.
  bool IsPath(int node, std::span<const TokenId> tokens) const;

  // Record of a candidate.
  struct Node {
    int parent = kTraceRoot;
    TokenId token = 0;
    float cum_log_prob = 0;
    int step = 0;  // tokens on its path
  };

  const RequestId id_;
  const int num_slots_;
  TraceSink* const sink_;
  int step_ = 0;             // depth of the longest path
  int pages_step_ = 0;       // step of the last event of pages
  std::set<PageId> cached_;  // found in the prefix tree
  std::vector<TraceCopy> copies_;
  std::optional<PrefillCounts>
      preempted_;  // while preempted, and until it has pages
  std::vector<Node> nodes_;
  std::vector<int> tree_nodes_;     // by the strategy's node
  std::map<int, int> living_;       // slot to node
  std::map<int, int> trace_slots_;  // slot to slot in the trace, if they differ
  std::vector<TraceHypothesis> finished_;
  const StoppingCriteria* criteria_ = nullptr;  // null: no constraint
  // By rank before the result that is recorded; advanced by draft tokens.
  std::vector<StoppingCriteria::Progress> progress_;
};

}  // namespace espalier
