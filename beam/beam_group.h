// BeamGroup: the sequences of one request, from its prompt to its hypotheses.
// It owns the page tables, writes its rows into step plans, and applies its
// strategy's decisions to the tables: a surviving beam keeps its slot, a twin
// forks into the slot of a beam that was cut (kernels/assign_slots.h).
//
//   one sequence, slot 0: the prompt, in chunks        (prefill)
//   its last token's candidates fork it into the slots (first decode step)
//   one row a live beam, each step                     (decode)
//
// A group belongs to its pool's strand. Planning and advancing alternate: a
// plan that holds rows of this group is answered before the next is written.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "beam/decode_strategy.h"
#include "exec_request/request.h"
#include "exec_request/sequence.h"
#include "exec_request/step_plan.h"
#include "pages/page_pool.h"

namespace espalier {

class BeamGroup {
 public:
  // Pages that a group for `request` holds at most, at any time. The last
  // token generated is never fed, so it needs no slot.
  static int64_t WorstCasePages(const Request& request, int page_size);

  // `request` has passed ValidateRequest; `pages` covers its WorstCasePages.
  // Pool and ids outlive the group.
  BeamGroup(RequestId id, Request request, PageReservation pages,
            PagePool* pool, SequenceIdSource* ids);

  RequestId id() const { return id_; }

  // How many tokens it would feed in the next step: what is left of the
  // prompt, or one for each live beam. 0 when done.
  int num_pending_tokens() const;
  bool prefilling() const;

  // Adds its rows to `*plan`, feeding at most `max_tokens` tokens of the
  // prompt while prefilling, and otherwise one of every live beam; with the
  // page copies these need.
  // Errors: kInternal if the pool is empty, against the promise of the
  // reservation; the group must be dropped then.
  // REQUIRES: !done(), max_tokens >= 1.
  absl::Status PlanStep(int max_tokens, StepPlan* plan);

  // Applies a step's answer. Forks of sequences, and those that ended, go into
  // `*next_plan`.
  // Errors: as DecodeStrategy::Advance; the group is done then.
  absl::Status Advance(const SelectionResult& result, StepPlan* next_plan);

  // Lets go of all pages; its sequences go into next_plan->finished. The
  // group is done then.
  void Drop(StepPlan* next_plan);

  bool done() const { return done_; }
  // REQUIRES: done().
  Result TakeResult();

  // For the validator and for figures: tables of the live sequences.
  std::vector<const PageTable*> Tables() const;

 private:
  void AddRow(const Sequence& sequence, int first_position,
              std::span<const TokenId> tokens, int num_logits, StepPlan* plan);
  void Apply(const std::vector<Continuation>& beams, StepPlan* next_plan);

  // Constant after construction.
  const RequestId id_;
  const Request request_;
  const std::shared_ptr<const ScoreProcessors> processors_;  // null if off
  const int num_slots_;
  PagePool* const pool_;
  SequenceIdSource* const ids_;

  PageReservation reservation_;
  std::unique_ptr<DecodeStrategy> strategy_;
  std::vector<std::optional<Sequence>> slots_;  // [num_slots]
  std::vector<int> slot_of_rank_;               // live beams
  int num_prompt_tokens_fed_ = 0;
  int64_t num_steps_ = 0;
  bool done_ = false;
};

}  // namespace espalier
