#include "beam/group_tracer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

CandidateFate FateOf(Decision::What what) {
  switch (what) {
    case Decision::What::kKept:
      return CandidateFate::kKept;
    case Decision::What::kFinished:
      return CandidateFate::kFinished;
    case Decision::What::kPruned:
      return CandidateFate::kPruned;
  }
  return CandidateFate::kPruned;
}

// Returns the number of leading pages that all slots share.
size_t NumShared(std::span<const HeldPages> slots) {
  if (slots.empty()) return 0;
  const std::vector<PageId>& first = slots.front().pages;
  size_t shared = first.size();
  for (const HeldPages& slot : slots) {
    const auto end = std::mismatch(first.begin(), first.begin() + shared,
                                   slot.pages.begin(), slot.pages.end());
    shared = end.first - first.begin();
  }
  return shared;
}

std::set<PageId> PagesOf(std::span<const HeldPages> slots) {
  std::set<PageId> pages;
  for (const HeldPages& slot : slots) {
    pages.insert(slot.pages.begin(), slot.pages.end());
  }
  return pages;
}

}  // namespace

GroupTracer::GroupTracer(RequestId id, const Request& request,
                         std::span<const TokenId> prompt, TraceSink* sink)
    : id_(id), num_slots_(NumSlots(request.params)), sink_(sink) {
  TraceRequest event = DescribeRequest(id, request);
  event.prompt_tokens.assign(prompt.begin(), prompt.end());
  sink_->On(std::move(event));
}

void GroupTracer::RecordMatch(std::span<const HeldPages> before,
                              std::span<const HeldPages> after,
                              std::span<const PageCopy> copies) {
  RecordCopies(copies);
  const std::set<PageId> old = PagesOf(before);
  for (const PageId page : PagesOf(after)) {
    const bool is_copy = std::ranges::any_of(
        copies, [page](const PageCopy& copy) { return copy.to == page; });
    if (!is_copy && !old.contains(page)) cached_.insert(page);
  }
}

void GroupTracer::RecordCopies(std::span<const PageCopy> copies) {
  for (const PageCopy& copy : copies) {
    copies_.push_back({copy.from, copy.to, copy.num_tokens});
  }
}

void GroupTracer::RecordPreemption(std::span<const HeldPages> slots,
                                   std::span<const int> slots_by_rank,
                                   const PrefillCounts& counts) {
  cached_.clear();
  copies_.clear();
  // If it is preempted again while it resumes, only the first event is
  // recorded.
  if (preempted_.has_value()) return;
  preempted_ = counts;
  TracePreempted event{.request = id_,
                       .step = step_ + 1,
                       .num_pages = std::ssize(PagesOf(slots))};
  const std::map<int, int> lived = std::exchange(living_, {});
  trace_slots_.clear();
  for (size_t rank = 0; rank < slots_by_rank.size(); ++rank) {
    const auto node = lived.find(slots_by_rank[rank]);
    if (node == lived.end()) continue;  // within the prompt
    event.nodes.push_back(node->second);
    living_[static_cast<int>(rank)] = node->second;
  }
  sink_->On(event);
}

void GroupTracer::RecordPages(std::span<const HeldPages> slots,
                              const PagePool& pool,
                              const PrefillCounts& counts) {
  if (preempted_.has_value() && !slots.empty()) {
    sink_->On(TraceResumed{
        .request = id_,
        .step = step_ + 1,
        .num_cached_tokens = counts.num_shared_again + counts.num_cached -
                             preempted_->num_shared_again -
                             preempted_->num_cached,
        .num_fed_tokens = counts.num_fed_again - preempted_->num_fed_again,
        .num_loaded_tokens =
            counts.num_loaded_again - preempted_->num_loaded_again});
    preempted_.reset();
  }
  // If a longer sample has ended, the step number continues from shorter ones.
  if (std::exchange(pages_step_, step_ + 1) == step_ + 1) return;
  TracePages event{.request = id_,
                   .step = step_ + 1,
                   .copied = std::exchange(copies_, {}),
                   .num_held = pool.num_in_use(),
                   .num_pages = pool.num_pages()};
  const size_t shared = NumShared(slots);
  if (!slots.empty()) {
    const std::vector<PageId>& pages = slots.front().pages;
    event.shared.assign(pages.begin(), pages.begin() + shared);
  }
  for (const HeldPages& slot : slots) {
    const auto living = living_.find(slot.slot);
    std::vector<PageId> own(slot.pages.begin() + shared, slot.pages.end());
    if (slot.is_draft) {
      event.drafts.push_back(std::move(own));
      continue;
    }
    event.slots.push_back(
        {.slot = TraceSlotOf(slot.slot),
         .node = living == living_.end() ? kTraceRoot : living->second,
         .pages = std::move(own)});
  }
  // Pages released since then may have been reused.
  const std::set<PageId> held = PagesOf(slots);
  std::erase_if(cached_, [&](PageId page) {
    return !held.contains(page) || !pool.is_cached(page);
  });
  event.cached.assign(cached_.begin(), cached_.end());
  sink_->On(event);
}

TraceLegalRow GroupTracer::DescribeLegal(
    const StoppingCriteria::Progress& progress, int node,
    const SelectionResult& answer, int candidate) const {
  TraceLegalRow row = {.node = node,
                       .state = progress.state,
                       .room = progress.room,
                       .num_legal = static_cast<int>(
                           criteria_->constraint()
                               ->LegalTokens(progress.state, progress.room)
                               .tokens.size())};
  if (candidate < 0 || candidate >= answer.logprobs.size()) return row;
  const std::optional<float> mass = answer.logprobs[candidate].legal_log_mass;
  if (mass && std::isfinite(*mass)) row.legal_log_mass = mass;
  return row;
}

void GroupTracer::RecordLegal(const StoppingCriteria& criteria,
                              std::vector<StoppingCriteria::Progress> live,
                              const SelectionResult& answer,
                              std::span<const int> parents) {
  criteria_ = &criteria;
  progress_ = std::move(live);
  // Before the first result all sequences are one row.
  progress_.resize(std::min(progress_.size(), parents.size()));
  std::vector<int> candidates(progress_.size(), -1);  // the first of each row
  for (int i = static_cast<int>(answer.candidates.size()) - 1; i >= 0; --i) {
    const int rank = answer.candidates[i].beam;
    if (rank < candidates.size()) candidates[rank] = i;
  }
  TraceLegal event{.request = id_};
  for (size_t rank = 0; rank < progress_.size(); ++rank) {
    const auto living = living_.find(parents[rank]);
    event.rows.push_back(DescribeLegal(
        progress_[rank], living == living_.end() ? kTraceRoot : living->second,
        answer, candidates[rank]));
  }
  sink_->On(event);
}

void GroupTracer::RecordLegalAfterDraft(int idx, int node,
                                        const SelectionResult& answer) {
  const Candidate& draft = answer.candidates[idx];
  StoppingCriteria::Progress& progress = progress_[draft.beam];
  criteria_->Feed(draft.token, &progress);
  sink_->On(
      TraceLegal{.request = id_,
                 .rows = {DescribeLegal(progress, node, answer, idx + 1)}});
}

TraceCandidate GroupTracer::Describe(const Candidate& candidate,
                                     const Decision& decision) const {
  TraceCandidate event{
      .request = id_,
      .step = 1,
      .node = static_cast<int>(nodes_.size()),
      .token = candidate.token,
      .cum_log_prob = candidate.cum_log_prob,
      .score = decision.score,
      .fate = FateOf(decision.what),
      .why = std::string(decision.why),
  };
  float before = 0;
  if (decision.parent != TokenTree::kRoot) {
    event.parent = tree_nodes_[decision.parent];
    event.step = nodes_[event.parent].step + 1;
    before = nodes_[event.parent].cum_log_prob;
  }
  event.log_prob = candidate.cum_log_prob - before;
  return event;
}

void GroupTracer::RecordStep(const SelectionResult& answer,
                             std::span<const Decision> decisions,
                             std::span<const int> parents,
                             std::span<const Continuation> sequences,
                             std::span<const int> slots) {
  living_.clear();
  std::vector<int> parent_slots;
  for (const int slot : parents) parent_slots.push_back(TraceSlotOf(slot));
  trace_slots_ = AssignTraceSlots(parent_slots, sequences, slots);
  Slots free;
  for (size_t rank = 0; rank < sequences.size(); ++rank) {
    const Continuation& sequence = sequences[rank];
    free.insert({{sequence.parent_rank, sequence.token}, slots[rank]});
  }
  for (const Decision& decision : decisions) {
    const Candidate& candidate = answer.candidates[decision.candidate_idx];
    TraceCandidate event = Describe(candidate, decision);
    event.parent_slot = parent_slots[candidate.beam];
    if (decision.is_followed) {
      event.slot = event.parent_slot;
    } else if (event.fate == CandidateFate::kKept) {
      TakeSlot({candidate.beam, candidate.token}, &free, &event);
    }
    Remember(event, decision);
    sink_->On(event);
    if (decision.is_followed && criteria_ != nullptr) {
      RecordLegalAfterDraft(decision.candidate_idx, event.node, answer);
    }
  }
}

int GroupTracer::TraceSlotOf(int slot) const {
  const auto assigned = trace_slots_.find(slot);
  return assigned == trace_slots_.end() ? slot : assigned->second;
}

std::map<int, int> GroupTracer::AssignTraceSlots(
    std::span<const int> parents, std::span<const Continuation> sequences,
    std::span<const int> slots) const {
  std::set<int> taken;
  for (size_t rank = 0; rank < sequences.size(); ++rank) {
    if (slots[rank] < num_slots_) taken.insert(slots[rank]);
  }
  std::map<int, int> assigned;
  for (size_t rank = 0; rank < sequences.size(); ++rank) {
    if (slots[rank] < num_slots_) continue;
    int slot = parents[sequences[rank].parent_rank];
    if (taken.contains(slot)) slot = 0;
    while (taken.contains(slot)) ++slot;
    taken.insert(slot);
    assigned[slots[rank]] = slot;
  }
  return assigned;
}

void GroupTracer::TakeSlot(const std::pair<int, TokenId>& sequence, Slots* free,
                           TraceCandidate* event) {
  // Samples with the same token are assigned in the order of their slots.
  const auto slot = free->lower_bound(sequence);
  if (slot == free->end() || slot->first != sequence) {  // the group is done
    event->fate = CandidateFate::kPruned;
    event->why = "the search is over";
    return;
  }
  event->slot = TraceSlotOf(slot->second);
  living_[slot->second] = event->node;
  free->erase(slot);
}

void GroupTracer::Remember(const TraceCandidate& event,
                           const Decision& decision) {
  nodes_.push_back({event.parent, event.token, event.cum_log_prob, event.step});
  step_ = std::max(step_, event.step);
  if (event.fate == CandidateFate::kFinished) {
    finished_.push_back({.node = event.node,
                         .score = *event.score,
                         .finish_reason = event.why});
  }
  if (!decision.node.has_value()) return;
  tree_nodes_.resize(std::max<size_t>(tree_nodes_.size(), *decision.node + 1));
  tree_nodes_[*decision.node] = event.node;
}

bool GroupTracer::IsPath(int node, std::span<const TokenId> tokens) const {
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    if (node == kTraceRoot || nodes_[node].token != *token) return false;
    node = nodes_[node].parent;
  }
  return node == kTraceRoot;
}

std::optional<int> GroupTracer::TakeLiving(std::span<const TokenId> tokens) {
  const auto found = std::ranges::find_if(
      living_, [&](const auto& slot) { return IsPath(slot.second, tokens); });
  if (found == living_.end()) return std::nullopt;
  const int node = found->second;
  living_.erase(found);
  return node;
}

void GroupTracer::RecordEnd(const absl::StatusOr<Result>& result) {
  TraceEnd event{.request = id_};
  if (!result.ok()) {
    event.error = result.status();
    sink_->On(event);
    return;
  }
  for (const Hypothesis& hypothesis : result->hypotheses) {
    // Samples may have equal tokens; each is recorded once.
    const auto found = std::find_if(finished_.begin(), finished_.end(),
                                    [&](const TraceHypothesis& f) {
                                      return f.score == hypothesis.score &&
                                             IsPath(f.node, hypothesis.tokens);
                                    });
    if (found != finished_.end()) {
      event.hypotheses.push_back(*found);
      finished_.erase(found);
    } else if (const auto node = TakeLiving(hypothesis.tokens)) {
      event.hypotheses.push_back(
          {.node = *node,
           .score = hypothesis.score,
           .finish_reason = std::string(NameOf(hypothesis.finish_reason))});
    }
  }
  sink_->On(event);
}

}  // namespace espalier
