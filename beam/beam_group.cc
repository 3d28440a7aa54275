#include "beam/beam_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/beam_strategy.h"
#include "beam/greedy_strategy.h"
#include "beam/selection_options.h"
#include "kernels/assign_slots.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

std::unique_ptr<DecodeStrategy> MakeStrategy(const GenerationParams& params) {
  if (params.num_beams == 1) return std::make_unique<GreedyStrategy>(params);
  return std::make_unique<BeamStrategy>(params);
}

}  // namespace

int64_t BeamGroup::WorstCasePages(const Request& request, int page_size) {
  const int64_t num_prompt_tokens = request.prompt_tokens.size();
  const int64_t max_new_tokens = request.params.max_new_tokens.value();
  // One token comes from the prompt's logits: nothing is fed after it.
  const int64_t num_beams =
      max_new_tokens == 1 ? 1 : SaturateToInt(request.params.num_beams);
  return espalier::WorstCasePages(num_prompt_tokens,
                                  num_prompt_tokens + max_new_tokens - 1,
                                  num_beams, page_size);
}

BeamGroup::BeamGroup(RequestId id, Request request, PageReservation pages,
                     PagePool* pool, SequenceIdSource* ids)
    : id_(id),
      request_(std::move(request)),
      processors_(MakeScoreProcessors(request_.params)),
      pool_(pool),
      ids_(ids),
      reservation_(std::move(pages)),
      strategy_(MakeStrategy(request_.params)),
      beams_(1) {
  slots_.push_back(Sequence{ids_->Next(), PageTable(pool_)});
}

int BeamGroup::num_pending_tokens() const {
  if (done_) return 0;
  if (!prefilling()) return static_cast<int>(beams_.size());
  return static_cast<int>(request_.prompt_tokens.size()) -
         num_prompt_tokens_fed_;
}

bool BeamGroup::prefilling() const {
  return !done_ && num_prompt_tokens_fed_ < request_.prompt_tokens.size();
}

absl::Status BeamGroup::PlanStep(int max_tokens, StepPlan* plan) {
  CHECK(!done_) << "request " << id_ << " is done";
  CHECK_GE(max_tokens, 1) << "tokens to feed";
  const absl::Status status =
      prefilling() ? PlanPrompt(max_tokens, plan) : PlanBeams(plan);
  if (status.ok()) return status;
  return Internal("request ", id_, " was promised ", reservation_.num_pages(),
                  " pages: ", Message(status));
}

absl::Status BeamGroup::PlanPrompt(int max_tokens, StepPlan* plan) {
  const int num_tokens = std::min(max_tokens, num_pending_tokens());
  Sequence& sequence = *slots_[0];
  RETURN_IF_ERROR(sequence.pages.Append(num_tokens, &plan->page_copies));
  const auto chunk = std::span(request_.prompt_tokens)
                         .subspan(num_prompt_tokens_fed_, num_tokens);
  num_prompt_tokens_fed_ += num_tokens;
  const int first_logits = plan->num_logits;
  AddRow(sequence, chunk, prefilling() ? 0 : 1, plan);
  if (!prefilling()) AddSelection(first_logits, plan);
  return absl::OkStatus();
}

absl::Status BeamGroup::PlanBeams(StepPlan* plan) {
  RETURN_IF_ERROR(AppendToBeams(plan));
  const int first_logits = plan->num_logits;
  for (const LiveBeam& beam : beams_) {
    AddRow(*slots_[beam.slot], std::span(&beam.last_token, 1), 1, plan);
  }
  AddSelection(first_logits, plan);
  return absl::OkStatus();
}

// Last rank first: twins rank below the beam they fork from, so that the
// twins copy the tail and the beam that kept its slot writes in place.
absl::Status BeamGroup::AppendToBeams(StepPlan* plan) {
  const size_t num_copies = plan->page_copies.size();
  for (auto beam = beams_.rbegin(); beam != beams_.rend(); ++beam) {
    const absl::Status status =
        slots_[beam->slot]->pages.Append(1, &plan->page_copies);
    if (!status.ok()) {
      plan->page_copies.resize(num_copies);
      return status;
    }
  }
  return absl::OkStatus();
}

void BeamGroup::AddRow(const Sequence& sequence,
                       std::span<const TokenId> tokens, int num_logits,
                       StepPlan* plan) const {
  const int num_tokens = static_cast<int>(tokens.size());
  plan->rows.push_back({
      .sequence = sequence.id,
      .first_token = static_cast<int>(plan->tokens.size()),
      .num_tokens = num_tokens,
      .first_position = sequence.pages.num_tokens() - num_tokens,
      .num_logits = num_logits,
      .first_logits = plan->num_logits,
  });
  plan->tokens.insert(plan->tokens.end(), tokens.begin(), tokens.end());
  plan->num_logits += num_logits;
  for (const PageRef& page : sequence.pages.pages()) {
    plan->page_indices.push_back(page.id());
  }
  plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
}

void BeamGroup::AddSelection(int first_logits, StepPlan* plan) const {
  PlanSelection selection;
  selection.request = id_;
  selection.first_logits = first_logits;
  selection.processors = processors_;
  strategy_->DescribeSelection(&selection);
  if (processors_ != nullptr && processors_->needs_history()) {
    selection.histories.assign(beams_.size(), request_.prompt_tokens);
    for (size_t rank = 0; rank < beams_.size(); ++rank) {
      strategy_->AppendTokens(static_cast<int>(rank),
                              &selection.histories[rank]);
    }
  }
  plan->selections.push_back(std::move(selection));
}

absl::Status BeamGroup::Advance(const SelectionResult& result,
                                StepPlan* next_plan) {
  CHECK(!done_) << "request " << id_ << " is done";
  ++num_steps_;
  const absl::StatusOr<std::vector<Continuation>> beams =
      strategy_->Advance(result.candidates);
  if (strategy_->done()) {
    Drop(next_plan);
    return beams.status();
  }
  Apply(*beams, next_plan);
  return absl::OkStatus();
}

void BeamGroup::Apply(std::span<const Continuation> beams,
                      StepPlan* next_plan) {
  const int num_beams = static_cast<int>(beams.size());
  if (slots_.size() < beams.size()) slots_.resize(beams.size());
  const int num_slots = static_cast<int>(slots_.size());
  std::vector<int> parents;  // slots, by rank
  for (const Continuation& beam : beams) {
    parents.push_back(beams_[beam.parent_rank].slot);
  }
  std::vector<int> slots(num_beams);
  const auto has_child = std::make_unique<bool[]>(num_slots);
  AssignSlots(parents.data(), num_beams, num_slots, slots.data(),
              has_child.get());
  std::vector<LiveBeam> next(num_beams);
  for (int rank = 0; rank < num_beams; ++rank) {
    next[rank] = {slots[rank], beams[rank].token};
  }
  CutBeams(next, parents, next_plan);
  ForkTwins(next, parents, next_plan);
  beams_ = std::move(next);
}

void BeamGroup::CutBeams(std::span<const LiveBeam> next,
                         std::span<const int> parents, StepPlan* next_plan) {
  std::vector<bool> survives(slots_.size());
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank].slot == parents[rank]) survives[parents[rank]] = true;
  }
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (survives[slot] || !slots_[slot].has_value()) continue;
    next_plan->finished.push_back(slots_[slot]->id);
    slots_[slot].reset();
  }
}

void BeamGroup::ForkTwins(std::span<const LiveBeam> next,
                          std::span<const int> parents, StepPlan* next_plan) {
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank].slot == parents[rank]) continue;
    const Sequence& parent = *slots_[parents[rank]];
    const SequenceId child = ids_->Next();
    next_plan->forks.push_back({parent.id, child});
    slots_[next[rank].slot] =
        Sequence{child, parent.pages.Fork(parent.pages.num_tokens())};
  }
}

void BeamGroup::Drop(StepPlan* next_plan) {
  for (const std::optional<Sequence>& sequence : slots_) {
    if (!sequence.has_value() || sequence->pages.num_tokens() == 0) continue;
    next_plan->finished.push_back(sequence->id);
  }
  slots_.clear();
  beams_.clear();
  reservation_ = PageReservation();
  done_ = true;
}

Result BeamGroup::TakeResult() const {
  CHECK(done_) << "request " << id_ << " is not done";
  Result result;
  result.hypotheses = strategy_->Hypotheses();
  result.usage.num_prompt_tokens = request_.prompt_tokens.size();
  result.usage.num_steps = num_steps_;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    result.usage.num_generated_tokens += hypothesis.tokens.size();
  }
  return result;
}

std::vector<const PageTable*> BeamGroup::Tables() const {
  std::vector<const PageTable*> tables;
  for (const std::optional<Sequence>& sequence : slots_) {
    if (sequence.has_value()) tables.push_back(&sequence->pages);
  }
  return tables;
}

}  // namespace espalier
