#include "tests/sim/simulation.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "executor/host/report_logprobs.h"
#include "executor/host/select_all.h"
#include "tests/sim/simulation_run.h"

namespace espalier::testing {

Simulation::Simulation(uint32_t seed, const SimOptions& options)
    : num_events_(options.num_events),
      case_(MakeSimCase(seed)),
      dice_(seed ^ 0x5eed),
      log_(case_.has_trace ? std::make_shared<AdmissionLog>() : nullptr),
      model_(case_.model,
             [this](RequestId id) {
               const auto live = live_.find(id);
               if (live == live_.end()) return SimModel::Asker{};
               return SimModel::Asker{
                   case_.requests[live->second.kind].prompt_tokens,
                   live->second.owner};
             }),
      groups_(case_.model.page_size),
      alone_(case_.requests.size()),
      states_alone_(case_.requests.size()) {
  SchedulerOptions scheduling = case_.scheduler;
  scheduling.trace = log_;
  ModelDescription description = model_.description();
  if (VerifiesDrafts(case_)) {
    draft_source_ = std::make_shared<SimModel>(
        case_.draft_model, [](RequestId) { return SimModel::Asker{}; });
    draft_ = *DraftModel::Create(draft_source_, *ThreadPool::Create(1));
    description.limits.max_drafted_length = draft_->max_tokens();
    drafter_.emplace(draft_, case_.model.page_size);
  }
  scheduler_ = std::make_unique<Scheduler>(description, scheduling);
  for (const Request& request : case_.requests) {
    // A step that only requests drafts may come before each token.
    const bool asks =
        request.params.speculate.has_value() &&
        request.params.speculate->method == SpeculationMethod::kDraft;
    const int64_t size = std::ssize(request.prompt_tokens) +
                         (asks ? 2 : 1) * NumSequences(request.params) *
                             *request.params.max_new_tokens;
    max_steps_as_first_ = std::max(max_steps_as_first_, 50 + 2 * size);
  }
}

void Simulation::Hash(uint64_t value) {
  uint64_t bits = report_.hash ^ (value + 0x9e3779b97f4a7c15);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  report_.hash = bits ^ (bits >> 31);
}

SimReport Simulation::Run() {
  while (ok()) {
    PlanSteps();
    if (!ok()) break;
    const bool arrives = report_.figures.num_events < num_events_;
    const bool answers = !in_flight_.empty();
    if (!arrives && !answers) break;
    const auto deadline = FirstDeadline();
    if (deadline && !(answers && in_flight_.front().end < *deadline) &&
        !(arrives && next_arrival_ < *deadline)) {
      now_ = std::max(now_, *deadline);
      ExpireDeadlines();
    } else if (answers &&
               (!arrives || in_flight_.front().end <= next_arrival_)) {
      now_ = std::max(now_, in_flight_.front().end);
      AnswerStep();
    } else {
      now_ = std::max(now_, next_arrival_);
      next_arrival_ = now_ + dice_.Any(1, case_.arrival_gap);
      Arrive();
    }
  }
  if (ok()) CheckEnd();
  SimFigures& figures = report_.figures;
  figures.num_preemptions = scheduler_->stats().num_preemptions;
  figures.num_evicted = scheduler_->tree().num_evicted();
  figures.num_swapped_out = scheduler_->stats().num_swapped_pages_out;
  figures.num_swapped_in = scheduler_->stats().num_swapped_pages_in;
  if (!ok()) return report_;
  scheduler_.reset();  // dies if a page is held
  return report_;
}

void Simulation::Arrive() {
  const int num_arriving = dice_.Any(1, case_.max_burst);
  for (int i = 0; i < num_arriving; ++i) {
    if (live_.size() < case_.max_live) Submit();
  }
  if (dice_.Chance(case_.cancellations)) CancelSomebody();
  if (case_.cancellations > 0 && dice_.Chance(2)) CancelAll();
  model_.PoisonFree(scheduler_->pool(), scheduler_->host_pool());
}

void Simulation::Submit() {
  const RequestId id{next_id_++};
  const int kind = dice_.Any(0, static_cast<int>(case_.requests.size()) - 1);
  Request request = case_.requests[kind];
  GenerationParams& params = request.params;
  params.priority = dice_.Any(0, case_.num_priorities - 1);
  const int64_t salt =
      dice_.Any(0, case_.num_salts - 1) + id.value / case_.salt_period;
  params.cache_salt = Concat(salt);
  params.prefix_cache = !dice_.Chance(100);
  if (case_.num_tenants > 1) {
    params.tenant = Concat(dice_.Any(0, case_.num_tenants - 1));
  }
  LiveRequest& live = live_[id];
  live.tenant = params.tenant;
  live.priority = params.priority;
  if (dice_.Chance(case_.deadlines)) {
    params.deadline_ms = dice_.Any(1, dice_.OneOf({10, 100, 400}));
    live.deadline = now_ + *params.deadline_ms;
  }
  live.kind = kind;
  live.turn = Turn::Of(params.priority, num_plans_, id);
  live.may_share = params.prefix_cache && case_.scheduler.prefix_cache &&
                   model_.description().has_shareable_pages;
  live.owner = live.may_share ? 1 + salt : -1 - id.value;
  Hash(id.value * 100 + kind);
  ++report_.figures.num_requests;
  CountEvents(1);
  submitted_ = id;
  PreparedRequest prepared(std::move(request));
  prepared.submitted = Deadlines::Time(std::chrono::milliseconds(now_));
  scheduler_->Submit(
      id, std::move(prepared),
      [this, id](absl::StatusOr<Result> result) { OnDone(id, result); },
      std::make_unique<StepCounter>(&live.num_decided));
  submitted_.reset();
}

void Simulation::CancelSomebody() {
  // Also one that has ended.
  RequestId id{dice_.Any(0, static_cast<int>(next_id_))};
  if (!live_.empty() && !dice_.Chance(100)) {
    id = std::next(live_.begin(), dice_.Any(0, std::ssize(live_) - 1))->first;
  }
  Hash(id.value);
  CountEvents(1);
  cancelled_ = {id};
  scheduler_->Cancel(id, absl::CancelledError("stop"));
  cancelled_.clear();
  if (live_.count(id) > 0) Fail("request ", id, " lives on when cancelled");
}

void Simulation::CancelAll() {
  CountEvents(std::ssize(live_));
  for (const auto& [id, live] : live_) cancelled_.insert(id);
  scheduler_->CancelAll(absl::CancelledError("stop"));
  cancelled_.clear();
  if (!live_.empty()) Fail("requests live on when all are cancelled");
}

std::optional<int64_t> Simulation::FirstDeadline() const {
  const auto first = scheduler_->first_deadline();
  if (!first.has_value()) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             first->time_since_epoch())
      .count();
}

void Simulation::ExpireDeadlines() {
  Hash(now_);
  CountEvents(1);
  expires_ = true;
  scheduler_->ExpireDeadlines(Deadlines::Time(std::chrono::milliseconds(now_)));
  expires_ = false;
  for (const auto& [id, live] : live_) {
    if (live.deadline && *live.deadline <= now_) {
      Fail("request ", id, " lives on when its deadline has passed");
    }
  }
  model_.PoisonFree(scheduler_->pool(), scheduler_->host_pool());
}

void Simulation::PlanSteps() {
  while (ok() && in_flight_.size() < case_.plans_in_flight && PlanStep()) {
  }
}

bool Simulation::PlanStep() {
  StepPlan plan = scheduler_->Plan();
  CheckAdmissions();
  const bool is_empty = plan.empty();
  if (!is_empty || !in_flight_.empty()) {
    num_empty_steps_ = 0;
  } else if (!live_.empty() && ++num_empty_steps_ > 2) {
    Fail("nothing runs, and ", live_.size(), " requests are left");
  }
  if (plan.is_noop()) {
    if (in_flight_.empty() && !live_.empty()) {
      Fail("no plan, and ", live_.size(), " requests are left");
    }
    return false;
  }
  ++num_plans_;  // as the scheduler counts, for turns
  RunStep(std::move(plan));
  if (!is_empty) CheckFirst();
  return true;
}

// Plans run in order when they are written; the clock decides when their
// results are read.
void Simulation::RunStep(StepPlan plan) {
  CountPlan(plan);
  HashPlan(plan);
  for (const PlanSelection& selection : plan.selections) {
    const DrawSelection* const draws = selection.as_draws();
    report_.figures.num_drafted_ahead +=
        draws != nullptr && draws->drafts.is_ahead;
  }
  StepDrafter::Step drafts;
  if (drafter_) {
    drafter_->Begin(&plan, &drafts);
    drafter_->DraftForLater(&drafts);
    draft_source_->PoisonFree(draft_->pages(), HostPool(0));
  }
  groups_.ExpandContinuations(&plan);
  const bool fails = !plan.empty() && dice_.Chance(case_.failing_steps);
  const bool fails_early = fails && dice_.Chance(700);
  StepInFlight& step = in_flight_.emplace_back();
  step.first_after = RequestId{next_id_};
  step.end = (NumSteps() > 1 ? in_flight_[NumSteps() - 2].end : now_) +
             dice_.Any(1, 8);
  model_.set_awaits_lost_plan(
      std::any_of(in_flight_.begin(), std::prev(in_flight_.end()),
                  [](const StepInFlight& s) { return !s.result.ok(); }));
  if (fails_early) {
    model_.Lose(plan);
  } else {
    step.result = Execute(plan);
    if (!step.result.ok()) {
      return Fail("the model refused a plan: ", step.result.status().message());
    }
  }
  if (fails) {
    ++report_.figures.num_failed_steps;
    step.result = absl::DataLossError("the device is gone");
    groups_.DiscardFailedStep();
    if (drafter_) drafter_->End(&drafts, &step.result);
  } else {
    groups_.Advance(*step.result);
    if (drafter_) drafter_->End(&drafts, &step.result);
    step.result->draft_time = {};  // a clock's, which differs between runs
    if (dice_.Chance(case_.wrong_answers)) SpoilAnswer(&step);
  }
  model_.PoisonFree(scheduler_->pool(), scheduler_->host_pool());
}

absl::StatusOr<StepResult> Simulation::Execute(const StepPlan& plan) {
  const int vocab_size = case_.model.vocab_size;
  std::vector<float> logits(size_t{1} * plan.num_logits * vocab_size);
  RETURN_IF_ERROR(model_.Forward(plan, logits));
  StepResult result;
  result.selections = SelectAll(plan, logits, vocab_size, threads_);
  result.scorings = ScoreAll(plan, logits, vocab_size, threads_);
  result.forward_time = SimModel::TimeOf(plan);
  return result;
}

void Simulation::SpoilAnswer(StepInFlight* step) {
  std::vector<SelectionResult>& answers = step->result->selections;
  if (answers.empty()) return;
  ++report_.figures.num_wrong_answers;
  SelectionResult& answer = answers[dice_.Any(0, std::ssize(answers) - 1)];
  if (!answer.further.empty()) {
    SpoilFurther(&answer.further);
    step->wrong_answer = answer.request;
    return;
  }
  switch (dice_.Any(0, 2)) {
    case 0:
      answers.pop_back();
      step->is_cut = true;
      return;
    case 1:
      if (!answer.num_drafted.empty() && dice_.Chance(500)) {
        answer.num_drafted[0] = 1000;
        break;
      }
      if (!answer.candidates.empty()) {
        answer.candidates[0].beam = 1000;
        break;
      }
      [[fallthrough]];
    default:
      answer.candidates.clear();
      answer.logprobs.clear();
      answer.error = absl::ResourceExhaustedError("no room for it now");
      break;
  }
  step->wrong_answer = answer.request;
}

// One step too many, or one of a beam that there is not.
void Simulation::SpoilFurther(std::vector<SelectionResult>* further) {
  SelectionResult& last = further->back();
  if (last.candidates.empty() || dice_.Chance(500)) {
    last.further.push_back(further->front());
  } else {
    last.candidates[0].beam = 1000;
  }
}

void Simulation::AnswerStep() {
  StepInFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  Hash(step.end);
  CountEvents(1);
  answered_ = &step;
  scheduler_->Advance(step.result);
  answered_ = nullptr;
  if (step.wrong_answer && live_.count(*step.wrong_answer) > 0) {
    Fail("request ", *step.wrong_answer, " goes on with a wrong answer");
  }
  model_.PoisonFree(scheduler_->pool(), scheduler_->host_pool());
}

// Chunks that end no prompt do not name their request: consecutive ones count
// as one.
void Simulation::CountPlan(const StepPlan& plan) {
  ++report_.figures.num_steps;
  int64_t count = std::ssize(plan.selections) + std::ssize(plan.continuations);
  bool was_chunk = false;
  for (const PlanRow& row : plan.rows) {
    const bool is_chunk = row.num_logits == 0;
    count += is_chunk && !was_chunk;
    was_chunk = is_chunk;
  }
  CountEvents(count);
}

void Simulation::HashPlan(const StepPlan& plan) {
  Hash(plan.rows.size());
  for (const PlanRow& row : plan.rows) {
    Hash(row.sequence.value);
    Hash(row.first_position * 1000 + row.num_tokens);
  }
  for (const TokenId token : plan.tokens) Hash(token);
  for (const PageId page : plan.page_indices) Hash(page.value);
  for (const PageSave& save : plan.page_saves) {
    Hash(save.page.value * 100000 + save.slot.value);
  }
  for (const PageLoad& load : plan.page_loads) {
    Hash(load.slot.value * 100000 + load.page.value);
  }
  for (const PageCopy& copy : plan.page_copies) {
    Hash(copy.from.value * 100000 + copy.to.value);
  }
  for (const SequenceFork& fork : plan.forks) Hash(fork.child.value);
  for (const SequenceId sequence : plan.finished) Hash(sequence.value);
  for (const RequestId request : plan.ended) Hash(request.value);
  for (const DraftSequence& sequence : plan.drafting) {
    Hash(sequence.request.value * 100 + sequence.num_tokens);
  }
  for (const GroupContinuation& continuation : plan.continuations) {
    Hash(continuation.request.value);
    for (const PageId page : continuation.tail_pages) Hash(page.value);
  }
}

SimFigures& SimFigures::operator+=(const SimFigures& other) {
  num_events += other.num_events;
  num_steps += other.num_steps;
  num_requests += other.num_requests;
  num_results += other.num_results;
  num_cancelled += other.num_cancelled;
  num_refused += other.num_refused;
  num_failed_steps += other.num_failed_steps;
  num_wrong_answers += other.num_wrong_answers;
  num_preemptions += other.num_preemptions;
  num_cached_tokens += other.num_cached_tokens;
  num_accepted_tokens += other.num_accepted_tokens;
  num_drafted_ahead += other.num_drafted_ahead;
  num_evicted += other.num_evicted;
  num_early_results += other.num_early_results;
  num_too_late += other.num_too_late;
  num_swapped_out += other.num_swapped_out;
  num_swapped_in += other.num_swapped_in;
  max_first_share = std::max(max_first_share, other.max_first_share);
  return *this;
}

SimReport Simulate(uint32_t seed, const SimOptions& options) {
  return Simulation(seed, options).Run();
}

}  // namespace espalier::testing
