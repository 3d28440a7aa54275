#include "beam/beam_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "beam/check_answer.h"
#include "beam/make_strategy.h"
#include "beam/selection_options.h"
#include "kernels/resident/assign_slots.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// So that `count` more can be added without failure.
template <typename T>
void ReserveMore(size_t count, std::vector<T>* values) {
  const size_t size = values->size() + count;
  if (size > values->capacity()) {
    values->reserve(std::max(size, 2 * values->capacity()));
  }
}

}  // namespace

int64_t BeamGroup::WorstCasePages(const Request& request, int page_size) {
  const int64_t num_prompt_tokens = request.prompt_tokens.size();
  const int64_t max_new_tokens = request.params.max_new_tokens.value();
  return espalier::WorstCasePages(num_prompt_tokens,
                                  num_prompt_tokens + max_new_tokens - 1,
                                  NumSlots(request.params), page_size);
}

BeamGroup::BeamGroup(RequestId id, PreparedRequest prepared,
                     PageReservation pages, PagePool* pool,
                     SequenceIdSource* ids, TraceSink* trace)
    : id_(id),
      request_(std::move(prepared.request)),
      rule_(std::move(prepared.rule)),
      finishing_token_ids_(FinishingTokenIds(request_.params)),
      pool_(pool),
      ids_(ids),
      reservation_(std::move(pages)),
      strategy_(MakeStrategy(request_.params, std::move(prepared.allowed),
                             std::move(prepared.text))),
      beams_(1) {
  slots_.resize(1);
  slots_[0].sequence = Sequence{ids_->Next(), PageTable(pool_)};
  if (trace != nullptr) {
    tracer_ = std::make_unique<GroupTracer>(id_, request_, trace);
  }
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

bool BeamGroup::can_plan() const {
  if (done_ || num_unanswered_ > 1) return false;
  if (num_unanswered_ == 0) return true;
  // The step ahead generates the token after the one that is outstanding.
  return num_steps_ + 2 <= *request_.params.max_new_tokens &&
         strategy_->runs_ahead();
}

absl::Status BeamGroup::PlanStep(int max_tokens, StepPlan* plan,
                                 int max_logits) {
  CHECK(can_plan()) << "request " << id_ << " is done or has to wait";
  CHECK_GE(max_tokens, 1) << "tokens to feed";
  CHECK_GE(max_logits, 1) << "lines of logits";
  const absl::Status status = prefilling()
                                  ? PlanPrompt(max_tokens, max_logits, plan)
                              : outstanding() ? PlanAhead(plan)
                                              : PlanBeams(plan);
  if (status.ok()) return status;
  return Internal("request ", id_, " was promised ", reservation_.num_pages(),
                  " pages: ", Message(status));
}

absl::Status BeamGroup::PlanPrompt(int max_tokens, int max_logits,
                                   StepPlan* plan) {
  const bool is_scored = request_.params.prompt_logprobs.has_value();
  if (is_scored) max_tokens = std::min(max_tokens, max_logits);
  const int num_tokens = std::min(max_tokens, num_pending_tokens());
  Sequence& sequence = *slots_[0].sequence;
  RETURN_IF_ERROR(sequence.pages.Append(num_tokens, &plan->page_copies));
  const auto chunk = std::span(request_.prompt_tokens)
                         .subspan(num_prompt_tokens_fed_, num_tokens);
  num_prompt_tokens_fed_ += num_tokens;
  const int first_logits = plan->num_logits;
  const int num_lines = is_scored ? num_tokens : prefilling() ? 0 : 1;
  AddRow(sequence, chunk, num_lines, plan);
  if (is_scored) AddScoring(first_logits, num_lines, plan);
  if (!prefilling()) AddSelection(first_logits + num_lines - 1, plan);
  return absl::OkStatus();
}

// The last token of a prompt has no next one.
void BeamGroup::AddScoring(int first_logits, int num_lines,
                           StepPlan* plan) const {
  const std::span<const TokenId> prompt = request_.prompt_tokens;
  const int first = num_prompt_tokens_fed_ - num_lines + 1;
  const int end = std::min<int>(first + num_lines, std::ssize(prompt));
  if (first == end) return;
  plan->scorings.push_back(
      {.request = id_,
       .first_logits = first_logits,
       .tokens = {prompt.begin() + first, prompt.begin() + end},
       .num_logprobs = SaturateToInt(*request_.params.prompt_logprobs)});
}

absl::Status BeamGroup::TakeScoring(const ScoringResult& result,
                                    size_t num_tokens, int vocab_size) {
  const std::vector<TokenLogProb>& logprobs = result.logprobs;
  const auto scored = std::span(request_.prompt_tokens)
                          .subspan(1 + prompt_logprobs_.size(), num_tokens);
  const int num_best = SaturateToInt(*request_.params.prompt_logprobs);
  RETURN_IF_ERROR(CheckLogProbs(logprobs, scored, num_best, vocab_size));
  prompt_logprobs_.insert(prompt_logprobs_.end(), logprobs.begin(),
                          logprobs.end());
  return absl::OkStatus();
}

absl::Status BeamGroup::PlanBeams(StepPlan* plan) {
  RETURN_IF_ERROR(AppendToBeams(plan));
  const int first_logits = plan->num_logits;
  for (const PlacedBeam& beam : beams_) {
    AddRow(*slots_[beam.slot].sequence, std::span(&beam.last_token, 1), 1,
           plan);
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
        slots_[beam->slot].sequence->pages.Append(1, &plan->page_copies);
    if (!status.ok()) {
      plan->page_copies.resize(num_copies);
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status BeamGroup::PlanAhead(StepPlan* plan) {
  RETURN_IF_ERROR(TakeTails());
  PlanSelection selection;  // of the step that is outstanding
  strategy_->DescribeSelection(&selection);
  GroupContinuation continuation = {
      .request = id_,
      .position = Position(num_steps_ + 1),
      .num_candidates = selection.num_candidates,
      .num_generated = selection.num_generated + 1,
      .rule = rule_};
  for (const Slot& slot : slots_) {
    continuation.tail_pages.push_back(slot.tail.id());
  }
  plan->continuations.push_back(std::move(continuation));
  ++num_unanswered_;
  return absl::OkStatus();
}

// Every slot has the page it writes into: the one its beam writes into now, if
// that is not full, or the one it has kept, or a fresh one. So a slot never
// holds two pages for one place in its table, whatever the answer, and the
// group stays within its worst case.
absl::Status BeamGroup::TakeTails() {
  slots_.resize(NumSlots(request_.params));
  for (Slot& slot : slots_) {
    if (slot.sequence.has_value()) slot.tail = slot.sequence->pages.TakeTail();
    if (slot.tail) continue;
    ASSIGN_OR_RETURN(slot.tail, pool_->Allocate());
  }
  return absl::OkStatus();
}

int BeamGroup::Position(int64_t num_generated) const {
  return static_cast<int>(request_.prompt_tokens.size() + num_generated - 1);
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

void BeamGroup::AddSelection(int first_logits, StepPlan* plan) {
  PlanSelection selection;
  selection.request = id_;
  selection.first_logits = first_logits;
  selection.rule = rule_;
  strategy_->DescribeSelection(&selection);
  selection.num_slots = NumSlots(request_.params);
  selection.eos_token_ids = finishing_token_ids_;
  for (const PlacedBeam& beam : beams_) selection.slots.push_back(beam.slot);
  if (rule_->processors.needs_history()) {
    selection.histories.resize(beams_.size());
    for (size_t rank = 0; rank < beams_.size(); ++rank) {
      strategy_->AppendTokens(static_cast<int>(rank),
                              &selection.histories[rank]);
    }
  }
  plan->selections.push_back(std::move(selection));
  ++num_unanswered_;
}

absl::Status BeamGroup::CheckAnswer(const SelectionResult& result,
                                    int vocab_size) const {
  PlanSelection asked;
  asked.rule = rule_;
  strategy_->DescribeSelection(&asked);
  return espalier::CheckAnswer(asked, result, vocab_size);
}

absl::Status BeamGroup::Advance(const SelectionResult& result,
                                StepPlan* next_plan) {
  CHECK(!done_) << "request " << id_ << " is done";
  CHECK_GE(num_unanswered_, 1) << "request " << id_ << " asked for nothing";
  --num_unanswered_;
  ++num_steps_;
  if (tracer_ != nullptr) return DecideAndTell(result, next_plan);
  std::vector<Decision> decisions;
  std::vector<Continuation> beams;
  return Decide(result, reports_logprobs() ? &decisions : nullptr, &beams,
                next_plan);
}

absl::Status BeamGroup::Decide(const SelectionResult& result,
                               std::vector<Decision>* decisions,
                               std::vector<Continuation>* beams,
                               StepPlan* next_plan) {
  absl::StatusOr<std::vector<Continuation>> live =
      strategy_->Advance(result, decisions);
  if (reports_logprobs()) logprobs_.Take(result, *decisions);
  if (strategy_->done()) {
    Drop(next_plan);
    return ExplainNoToken(live.status(), request_.params);
  }
  *beams = *std::move(live);
  Apply(*beams, next_plan);
  return absl::OkStatus();
}

absl::Status BeamGroup::DecideAndTell(const SelectionResult& result,
                                      StepPlan* next_plan) {
  tracer_->TellPages(PagesBySlot(), *pool_);
  const std::vector<int> parents = LiveSlots();
  std::vector<Decision> decisions;
  std::vector<Continuation> beams;
  const absl::Status status = Decide(result, &decisions, &beams, next_plan);
  tracer_->TellAnswer(result, decisions, parents, beams, LiveSlots());
  return status;
}

std::vector<HeldPages> BeamGroup::PagesBySlot() const {
  std::vector<HeldPages> held;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    HeldPages pages = {.slot = static_cast<int>(slot), .pages = {}};
    if (slots_[slot].sequence.has_value()) {
      for (const PageRef& page : slots_[slot].sequence->pages.pages()) {
        pages.pages.push_back(page.id());
      }
    }
    if (slots_[slot].tail) pages.pages.push_back(slots_[slot].tail.id());
    if (!pages.pages.empty()) held.push_back(std::move(pages));
  }
  return held;
}

std::vector<int> BeamGroup::LiveSlots() const {
  std::vector<int> slots;
  for (const PlacedBeam& beam : beams_) slots.push_back(beam.slot);
  return slots;
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
  std::vector<PlacedBeam> next(num_beams);
  for (int rank = 0; rank < num_beams; ++rank) {
    next[rank] = {slots[rank], beams[rank].token};
  }
  CutBeams(next, parents, next_plan);
  ForkTwins(next, parents, next_plan);
  PutTails(next, parents);
  beams_ = std::move(next);
}

void BeamGroup::CutBeams(std::span<const PlacedBeam> next,
                         std::span<const int> parents, StepPlan* next_plan) {
  std::vector<bool> survives(slots_.size());
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank].slot == parents[rank]) survives[parents[rank]] = true;
  }
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    std::optional<Sequence>& sequence = slots_[slot].sequence;
    if (survives[slot] || !sequence.has_value()) continue;
    next_plan->finished.push_back(sequence->id);
    sequence.reset();
  }
}

void BeamGroup::ForkTwins(std::span<const PlacedBeam> next,
                          std::span<const int> parents, StepPlan* next_plan) {
  for (size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank].slot == parents[rank]) continue;
    const Sequence& parent = *slots_[parents[rank]].sequence;
    const SequenceId child = ids_->Next();
    Sequence fork = {child, parent.pages.Fork(parent.pages.num_tokens())};
    // Said of all that live, and of nobody else, also where memory runs out.
    if (!outstanding()) next_plan->forks.push_back({parent.id, child});
    slots_[next[rank].slot].sequence = std::move(fork);
  }
}

// If the step that the next beams feed in is planned already, the tables have
// full pages alone, and get what it writes into.
void BeamGroup::PutTails(std::span<const PlacedBeam> next,
                         std::span<const int> parents) {
  num_tail_copies_ahead_ = 0;
  if (!outstanding()) {
    for (Slot& slot : slots_) slot.tail = PageRef();
    return;
  }
  const int num_tail_tokens = Position(num_steps_) % pool_->page_size();
  for (size_t rank = 0; rank < next.size(); ++rank) {
    Slot& slot = slots_[next[rank].slot];
    slot.sequence->pages.PutTail(std::move(slot.tail), num_tail_tokens + 1);
    const bool moved = next[rank].slot != parents[rank];
    if (moved && num_tail_tokens > 0) ++num_tail_copies_ahead_;
  }
}

void BeamGroup::Drop(StepPlan* next_plan) {
  if (done_) return;
  if (was_planned() && next_plan != nullptr) {
    ReserveMore(1, &next_plan->ended);
    ReserveMore(slots_.size(), &next_plan->finished);
    next_plan->ended.push_back(id_);
    for (const Slot& slot : slots_) {
      if (!slot.sequence.has_value()) continue;
      next_plan->finished.push_back(slot.sequence->id);
    }
  }
  slots_.clear();
  beams_.clear();
  reservation_ = PageReservation();
  done_ = true;
}

void BeamGroup::TellEnd(const absl::StatusOr<Result>& result) {
  CHECK(done_) << "request " << id_ << " is not done";
  if (tracer_ != nullptr) tracer_->TellEnd(result);
}

Result BeamGroup::TakeResult() const {
  CHECK(done_) << "request " << id_ << " is not done";
  Result result;
  result.hypotheses = strategy_->Hypotheses();
  result.threshold = strategy_->threshold();
  result.usage.num_prompt_tokens = request_.prompt_tokens.size();
  result.usage.num_steps = num_steps_;
  if (DrawsAtRandom(request_.params)) result.seed = request_.params.seed;
  if (request_.params.prompt_logprobs) {
    result.prompt_logprobs = prompt_logprobs_;
  }
  for (Hypothesis& hypothesis : result.hypotheses) {
    if (reports_logprobs()) {
      hypothesis.logprobs = logprobs_.Of(hypothesis.tokens);
    }
    result.usage.num_generated_tokens += hypothesis.tokens.size();
  }
  return result;
}

std::vector<const PageTable*> BeamGroup::Tables() const {
  std::vector<const PageTable*> tables;
  for (const Slot& slot : slots_) {
    if (slot.sequence.has_value()) tables.push_back(&slot.sequence->pages);
  }
  return tables;
}

std::vector<const PageRef*> BeamGroup::Tails() const {
  std::vector<const PageRef*> tails;
  for (const Slot& slot : slots_) {
    if (slot.tail) tails.push_back(&slot.tail);
  }
  return tails;
}

}  // namespace espalier
