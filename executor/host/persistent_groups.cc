#include "executor/host/persistent_groups.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/constraint_state.h"
#include "base/memory.h"
#include "exec_request/surviving_candidates.h"
#include "kernels/resident/assign_slots.h"

namespace espalier {
namespace {

// Returns the plan row of each row of logits.
std::vector<int> PlanRowsOf(const StepPlan& plan) {
  std::vector<int> rows(plan.num_logits);
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    const PlanRow& r = plan.rows[row];
    std::fill_n(rows.begin() + r.first_logits, r.num_logits,
                static_cast<int>(row));
  }
  return rows;
}

}  // namespace

void PersistentGroups::ExpandContinuations(StepPlan* plan) {
  // This retries until there is memory, because DiscardFailedStep() needs the
  // groups if the plan fails.
  asked_ = UntilThereIsMemory([&] { return AskedOf(*plan); });
  for (const RequestId group : plan->ended) groups_.erase(group);
  const std::vector<int> rows = PlanRowsOf(*plan);
  lists_.clear();
  for (const PlanSelection& selection : plan->selections) {
    if (!selection.drafts().empty()) {  // it has no continuation
      groups_.erase(selection.request);
      continue;
    }
    groups_[selection.request] = FromRows(
        *plan, selection,
        std::span(rows).subspan(selection.first_logits, selection.num_rows));
  }
  for (const GroupContinuation& continuation :
       std::exchange(plan->continuations, {})) {
    ExpandContinuations(continuation, plan);
  }
  for (size_t i = 0; i < plan->selections.size(); ++i) {
    if (plan->selections[i].places.empty()) continue;
    MakeLists(&plan->selections.Edit(i));
  }
}

PersistentGroups::Group PersistentGroups::FromRows(
    const StepPlan& plan, const PlanSelection& selection,
    std::span<const int> rows) {
  CHECK_EQ(selection.slots.size(), rows.size()) << "slots of rows";
  Group group;
  group.num_slots = selection.num_slots;
  group.eos_token_ids = selection.eos_token_ids;
  if (const DrawSelection* draws = selection.as_draws()) {
    group.samples = draws->samples;
  }
  group.keeps_histories = !selection.histories.empty();
  if (!selection.places.empty()) {
    group.params = selection.params;
    group.places = selection.places;
  }
  const BeamSelection* const beams = selection.as_beams();
  if (beams != nullptr && beams->may_lack) {
    group.max_candidates = beams->num_candidates;
  }
  group.tables.resize(group.num_slots);
  const PlanSource* const source =
      rows.empty() ? nullptr : plan.source_of(rows[0]);
  if (source != nullptr) {
    group.source = *source;
    group.source->num_stored = source->input->length();
  }
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const int slot = selection.slots[rank];
    const std::span<const PageId> pages = plan.row_pages(rows[rank]);
    group.tables[slot].assign(pages.begin(), pages.end());
    Beam& beam = group.beams.emplace_back();
    beam.slot = beam.parent_slot = slot;
    if (group.keeps_histories) beam.history = selection.histories[rank];
  }
  return group;
}

void PersistentGroups::ExpandContinuations(
    const GroupContinuation& continuation, StepPlan* plan) {
  PlanSelection selection;
  selection.request = continuation.request;
  selection.first_logits = plan->num_logits;
  selection.num_generated = continuation.num_generated;
  selection.params = continuation.params;
  SmallVector<int> samples;
  const auto found = groups_.find(continuation.request);
  if (found != groups_.end()) {
    Group& group = found->second;
    MoveForks(continuation, &group, &plan->page_copies);
    if (group.source && !group.beams.empty()) {
      PlanSource& source = plan->sources.emplace_back(*group.source);
      source.first_row = static_cast<int>(plan->rows.size());
      source.num_rows = static_cast<int>(group.beams.size());
    }
    for (const Beam& beam : group.beams) {
      AddRow(group, beam, continuation.position, plan);
      selection.cum_log_probs.push_back(beam.cum_log_prob);
      if (!group.samples.empty()) samples.push_back(beam.sample);
      if (group.keeps_histories) selection.histories.push_back(beam.history);
      if (group.params != nullptr) selection.places.push_back(beam.place);
    }
    group.places = selection.places;
    group.max_candidates = continuation.kind == SelectionKind::kBeams
                               ? continuation.num_candidates
                               : 0;
    group.samples = samples;
    selection.num_rows = static_cast<int>(group.beams.size());
  }
  if (continuation.kind == SelectionKind::kDraws) {
    selection.choice = DrawSelection{.samples = std::move(samples)};
  } else {
    selection.choice =
        BeamSelection{.num_candidates = continuation.num_candidates};
  }
  plan->selections.push_back(std::move(selection));
}

void PersistentGroups::MakeLists(PlanSelection* selection) {
  const ConstraintTables& constraint = *selection->params->constraint;
  for (const auto& [state, room] : std::exchange(selection->places, {})) {
    std::vector<TokenId>& list = lists_.emplace_back();
    for (TokenId token = 0; token < constraint.vocab_size; ++token) {
      if (IsLegalToken(constraint, state, room, token)) list.push_back(token);
    }
    selection->allowed.push_back(list);
  }
}

void PersistentGroups::MoveForks(const GroupContinuation& continuation,
                                 Group* group,
                                 std::vector<PageCopy>* copies) const {
  CHECK_EQ(continuation.tail_pages.size(), group->tables.size()) << "tails";
  const int num_full = continuation.position / page_size_;
  const int num_tail_tokens = continuation.position % page_size_;
  for (const Beam& beam : group->beams) {
    if (beam.slot == beam.parent_slot) continue;
    const std::vector<PageId>& parent = group->tables[beam.parent_slot];
    group->tables[beam.slot].assign(parent.begin(), parent.begin() + num_full);
    if (num_tail_tokens == 0) continue;
    copies->push_back({parent[num_full], continuation.tail_pages[beam.slot],
                       num_tail_tokens});
  }
  for (const Beam& beam : group->beams) {
    group->tables[beam.slot].resize(num_full);
    group->tables[beam.slot].push_back(continuation.tail_pages[beam.slot]);
  }
}

void PersistentGroups::AddRow(const Group& group, const Beam& beam,
                              int position, StepPlan* plan) {
  plan->rows.push_back({.sequence = SequenceId{-1},
                        .first_token = static_cast<int>(plan->tokens.size()),
                        .num_tokens = 1,
                        .first_position = position,
                        .num_logits = 1,
                        .first_logits = plan->num_logits});
  plan->tokens.push_back(beam.token);
  ++plan->num_logits;
  plan->page_indices.append(group.tables[beam.slot]);
  plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
}

void PersistentGroups::Advance(const StepResult& result) {
  CHECK_EQ(result.selections.size(), asked_.size()) << "answers";
  for (size_t i = 0; i < asked_.size(); ++i) {
    const auto group = groups_.find(asked_[i]);
    if (group == groups_.end()) continue;
    NextBeams(result.selections[i].candidates, &group->second);
  }
}

std::vector<SurvivingCandidate> PersistentGroups::Survivors(
    std::span<const Candidate> candidates, const Group& group) {
  std::vector<SurvivingCandidate> survivors;
  if (group.params == nullptr) {
    for (const int i : SurvivingCandidates(candidates, group.num_slots,
                                           group.eos_token_ids)) {
      survivors.push_back({.idx = i, .place = {}});
    }
    return survivors;
  }
  survivors = SurvivingCandidates(candidates, group.num_slots,
                                  *group.params->constraint, group.places);
  const bool lacks = group.max_candidates > 0 &&
                     LacksBeams(group.max_candidates, std::ssize(candidates),
                                group.num_slots, std::ssize(survivors));
  if (lacks) survivors.clear();
  return survivors;
}

void PersistentGroups::NextBeams(std::span<const Candidate> candidates,
                                 Group* group) {
  std::vector<Beam> next;
  std::vector<int> parents;  // slots, by rank
  for (const auto& [i, place] : Survivors(candidates, *group)) {
    const Candidate& candidate = candidates[i];
    const Beam& parent = group->beams.at(candidate.beam);
    parents.push_back(parent.slot);
    next.push_back({.parent_slot = parents.back(),
                    .token = candidate.token,
                    .cum_log_prob = candidate.cum_log_prob,
                    .sample = group->samples.empty() ? 0 : group->samples.at(i),
                    .history = parent.history,
                    .place = place});
    if (group->keeps_histories) {
      next.back().history.push_back(candidate.token);
    }
  }
  const int num_beams = static_cast<int>(next.size());
  std::vector<int> slots(num_beams);
  const auto has_child = std::make_unique<bool[]>(group->num_slots);
  AssignSlots(parents.data(), num_beams, group->num_slots, slots.data(),
              has_child.get());
  for (int rank = 0; rank < num_beams; ++rank) next[rank].slot = slots[rank];
  group->beams = std::move(next);
}

void PersistentGroups::DiscardFailedStep() {
  for (const RequestId group : asked_) groups_.erase(group);
}

}  // namespace espalier
