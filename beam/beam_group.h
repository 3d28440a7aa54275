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
// plan that selects for this group is answered before the next is written.
//
//   BeamGroup group(id, request, std::move(pages), &pool, &sequence_ids);
//   StepPlan plan;
//   while (!group.done()) {
//     RETURN_IF_ERROR(group.PlanStep(max_tokens, &plan));
//     StepResult result = ...;  // an executor's answer to the plan
//     plan = StepPlan();
//     for (const SelectionResult& selection : result.selections) {
//       RETURN_IF_ERROR(group.Advance(selection, &plan));
//     }
//   }
//   Result result = group.TakeResult();
#pragma once

#include <memory>
#include <optional>
#include <span>
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
  // REQUIRES: `request` has passed ValidateRequest.
  static int64_t WorstCasePages(const Request& request, int page_size);

  // `request` has passed ValidateRequest; `pages` covers its WorstCasePages.
  // Pool and ids outlive the group.
  BeamGroup(RequestId id, Request request, PageReservation pages,
            PagePool* pool, SequenceIdSource* ids);

  RequestId id() const { return id_; }
  // Beams that live at most: rows it needs in a step.
  int64_t num_beams() const { return request_.params.num_beams; }

  // How many tokens it would feed in the next step: what is left of the
  // prompt, or one for each live beam. 0 when done.
  int num_pending_tokens() const;
  // Whether some of the prompt is not planned yet.
  bool prefilling() const;

  // Adds its rows to `*plan`, feeding at most `max_tokens` tokens of the
  // prompt while prefilling, and otherwise one of every live beam; with the
  // page copies these need. A plan selects for the group unless its chunk
  // leaves some of the prompt.
  // Errors: kInternal, leaving `*plan` unchanged, if the pool is empty,
  // against the promise of the reservation; the group must be dropped then.
  // REQUIRES: !done(), max_tokens >= 1.
  absl::Status PlanStep(int max_tokens, StepPlan* plan);

  // Applies a step's answer. Forks of sequences, and those that ended, go into
  // `*next_plan`.
  // Errors: as DecodeStrategy::Advance; the group is done then.
  // REQUIRES: !done().
  absl::Status Advance(const SelectionResult& result, StepPlan* next_plan);

  // Lets go of all pages; its sequences, as far as a plan ever named them, go
  // into next_plan->finished. The group is done then.
  // REQUIRES: `*next_plan` has no rows of this group.
  void Drop(StepPlan* next_plan);

  bool done() const { return done_; }
  // REQUIRES: done().
  Result TakeResult() const;

  // Pages promised to it.
  int64_t num_reserved_pages() const { return reservation_.num_pages(); }
  // For the validator and for figures: tables of the live sequences.
  std::vector<const PageTable*> Tables() const;

 private:
  struct LiveBeam {
    int slot = 0;
    TokenId last_token = 0;  // generated, and not fed yet
  };

  absl::Status PlanPrompt(int max_tokens, StepPlan* plan);
  absl::Status PlanBeams(StepPlan* plan);
  absl::Status AppendToBeams(StepPlan* plan);
  void AddRow(const Sequence& sequence, std::span<const TokenId> tokens,
              int num_logits, StepPlan* plan) const;
  void AddSelection(int first_logits, StepPlan* plan) const;

  void Apply(std::span<const Continuation> beams, StepPlan* next_plan);
  void CutBeams(std::span<const LiveBeam> next, std::span<const int> parents,
                StepPlan* next_plan);
  void ForkTwins(std::span<const LiveBeam> next, std::span<const int> parents,
                 StepPlan* next_plan);

  // Constant after construction.
  const RequestId id_;
  const Request request_;
  const std::shared_ptr<const ScoreProcessors> processors_;  // null if off
  PagePool* const pool_;
  SequenceIdSource* const ids_;

  PageReservation reservation_;
  std::unique_ptr<DecodeStrategy> strategy_;
  // At most num_beams; grown as beams come alive, since a request may ask for
  // more beams than there ever are continuations.
  std::vector<std::optional<Sequence>> slots_;
  std::vector<LiveBeam> beams_;  // by rank
  int num_prompt_tokens_fed_ = 0;
  int64_t num_steps_ = 0;
  bool done_ = false;
};

}  // namespace espalier
