// GroupPlanWriter: what one group writes into step plans. It owns what its rows
// and selections say at every step: the request's id and parameters, and the
// selection, which plans share because little of it changes from step to step.
// It counts the selections whose results are outstanding.
//
// The sequences themselves are arguments: their tokens (GroupSearch) and the
// slots and pages where they live (GroupPages). The group decides what a plan
// contains, and makes room in the pages before it writes a row.
//
//   writer.AddSelection(plan->num_logits, search, pages, plan);
//   for (...) writer.AddTokenRow(sequence, token, plan);
//   ...
//   writer.OnResult();   // then the strategy advances
//
// Invariants:
//   - a row's tokens are the last ones of its sequence's table;
//   - the selection is updated after each result, and described anew if the
//     sequences moved (InvalidateRows).
//
// Belongs to its group's strand. Functions of the step's path are inline.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/cow_vector.h"
#include "base/ids.h"
#include "base/small_vector.h"
#include "beam/group_search.h"
#include "beam/pages/group_pages.h"
#include "beam/pages/sequence.h"
#include "beam/strategy/assign_each.h"
#include "exec_request/step_plan.h"
#include "pages/prefix_tree.h"
#include "request/request.h"

namespace espalier {

class GroupPlanWriter {
 public:
  //   params  of the selections of `request`
  GroupPlanWriter(RequestId id, const Request& request,
                  std::shared_ptr<const SelectionParams> params);

  RequestId id() const { return id_; }
  const std::shared_ptr<const SelectionParams>& params() const {
    return params_;
  }

  // Number of selections in plans whose results are outstanding, at most 2.
  int num_outstanding() const { return num_outstanding_; }
  // Counts the arrival of the oldest outstanding result.
  void OnResult() {
    --num_outstanding_;
    is_current_ = false;
  }
  // True if a plan named the group since it began or resumed. OnPlanned()
  // records it as soon as the pages of a step are taken.
  bool was_planned() const { return was_planned_; }
  void OnPlanned() { was_planned_ = true; }
  void OnPreempt() { was_planned_ = false; }
  // Called if sequences get other ranks or slots, or another number of rows,
  // with the next result; and at once.
  void InvalidateRows() { has_rows_ = false; }
  void InvalidateSelection() { is_current_ = has_rows_ = false; }

  // Returns the selection that is requested next, or whose result is
  // outstanding.
  const PlanSelection& Selection(const GroupSearch& search,
                                 const GroupPages& pages) {
    if (!is_current_) Describe(search, pages, &EditShared(&selection_));
    return *selection_;
  }
  // As above, to be changed for one result.
  PlanSelection& EditSelection(const GroupSearch& search,
                               const GroupPages& pages) {
    Selection(search, pages);
    is_current_ = false;
    return EditShared(&selection_);
  }
  // Returns Selection() with rows of logits from `first_logits` on, for a plan
  // that requests it, and counts its result as outstanding.
  [[gnu::always_inline]] const PlanSelection& SelectFrom(
      int first_logits, const GroupSearch& search, const GroupPages& pages) {
    PlanSelection& selection = EditShared(&selection_);
    if (!is_current_) Describe(search, pages, &selection);
    selection.first_logits = first_logits;
    if (needs_history_) AddHistories(search, pages.num_sequences(), &selection);
    ++num_outstanding_;
    return selection;
  }
  // Adds this selection to `*plan`, which shares it.
  [[gnu::always_inline]] void AddSelection(int first_logits,
                                           const GroupSearch& search,
                                           const GroupPages& pages,
                                           StepPlan* plan) {
    SelectFrom(first_logits, search, pages);
    plan->selections.push_back(selection_);
  }
  // Adds a continuation of the outstanding selection, and counts its result.
  void AddContinuation(GroupContinuation continuation, StepPlan* plan) {
    plan->continuations.push_back(std::move(continuation));
    ++num_outstanding_;
  }

  // Adds a row for `tokens`, the last ones of `sequence`.
  void AddRow(const Sequence& sequence, const TokenPath& tokens, int num_logits,
              StepPlan* plan) const;
  // Adds a row for one token, with logits.
  [[gnu::always_inline]] void AddTokenRow(const Sequence& sequence,
                                          TokenId token, StepPlan* plan) const {
    AddRowOf(sequence, 1, 1, plan);
    plan->tokens.push_back(token);
  }
  // Prefetches the selection. Always inlined: gcc drops calls of functions that
  // only prefetch.
  [[gnu::always_inline]] void PrefetchSelection() const {
    __builtin_prefetch(selection_.get());
  }

 private:
  // Adds a row for the tokens that the plan gets next.
  [[gnu::always_inline]] void AddRowOf(const Sequence& sequence, int num_tokens,
                                       int num_logits, StepPlan* plan) const {
    plan->rows.push_back({
        .sequence = sequence.id,
        .first_token = static_cast<int>(plan->tokens.size()),
        .num_tokens = num_tokens,
        .first_position = sequence.num_tokens() - num_tokens,
        .num_logits = num_logits,
        .first_logits = plan->num_logits,
    });
    plan->num_logits += num_logits;
    plan->page_indices.append(sequence.pages.page_ids());
    plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
  }
  [[gnu::always_inline]] void Describe(const GroupSearch& search,
                                       const GroupPages& pages,
                                       PlanSelection* selection) {
    is_current_ = true;
    if (has_rows_) return search.UpdateSelection(selection);
    has_rows_ = true;
    search.strategy().DescribeSelection(selection);
    const std::span<const int> slots = pages.slots();
    AssignEach(
        slots.size(), [&](size_t rank) { return slots[rank]; },
        &selection->slots);
  }
  static void AddHistories(const GroupSearch& search, size_t num_rows,
                           PlanSelection* selection);

  // Members that each step reads come first. State of *selection_: is_current_
  // if it describes the next result; has_rows_ if its rows and slots are
  // current.
  bool is_current_ = false;
  bool has_rows_ = false;
  bool was_planned_ = false;
  const bool needs_history_;  // for the processors of its rows
  int num_outstanding_ = 0;
  std::shared_ptr<PlanSelection> selection_;

  const RequestId id_;
  const std::shared_ptr<const SelectionParams> params_;
};

}  // namespace espalier
