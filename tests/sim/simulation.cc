#include "tests/sim/simulation.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "batcher/admission.h"
#include "batcher/scheduler.h"
#include "executor/host/draft_model.h"
#include "executor/host/persistent_groups.h"
#include "executor/host/report_logprobs.h"
#include "executor/host/select_all.h"
#include "tests/batcher/toy_requests.h"
#include "tests/sim/best_so_far.h"
#include "tests/sim/sim_case.h"
#include "tests/sim/sim_model.h"
#include "trace/trace.h"

namespace espalier::testing {
namespace {

// Who is admitted, in this order.
class AdmissionLog final : public TraceSink {
 public:
  void On(const TraceEvent& event) override {
    if (const auto* request = std::get_if<TraceRequest>(&event)) {
      admitted_.push_back(request->request);
    }
  }
  std::vector<RequestId> Take() { return std::exchange(admitted_, {}); }

 private:
  std::vector<RequestId> admitted_;
};

// A request that is not answered yet.
struct LiveRequest {
  int kind = 0;  // index in SimCase::requests
  Turn turn;
  int64_t owner = 0;  // of its pages
  bool may_share = false;
  bool is_admitted = false;  // where there is a trace
  std::string tenant = {};
  int64_t priority = 0;
  std::optional<int64_t> deadline = {};  // by the clock
  int num_decided = 0;                   // steps whose answer it has had
  int64_t num_steps_as_first = 0;
};

// A plan that was run and is not answered.
struct StepInFlight {
  absl::StatusOr<StepResult> result;
  int64_t end = 0;                        // by the clock
  RequestId first_after = {};             // submitted after the plan
  std::optional<RequestId> wrong_answer;  // of whom, if one is
  bool is_cut = false;                    // an answer is missing
};

class Simulation {
 public:
  Simulation(uint32_t seed, const SimOptions& options);
  SimReport Run();

 private:
  int64_t NumSteps() const { return static_cast<int64_t>(in_flight_.size()); }
  bool ok() const { return report_.fault.empty(); }
  template <typename... Parts>
  void Fail(const Parts&... parts);
  void Hash(uint64_t value);
  void CountEvents(int64_t count) { report_.figures.num_events += count; }

  void Arrive();
  void Submit();
  void CancelSomebody();
  void CancelAll();
  // When the earliest deadline passes.
  std::optional<int64_t> FirstDeadline() const;
  void ExpireDeadlines();

  void PlanSteps();
  bool PlanStep();
  void RunStep(StepPlan plan);
  absl::StatusOr<StepResult> Execute(const StepPlan& plan);
  void SpoilAnswer(StepInFlight* step);
  void AnswerStep();

  void OnDone(RequestId id, const absl::StatusOr<Result>& result);
  // Why a request may end with an error; "" if it may.
  std::string CheckError(RequestId id, const LiveRequest& live,
                         const absl::Status& status) const;
  void CheckResult(RequestId id, const LiveRequest& live,
                   const absl::StatusOr<Result>& result);
  void CheckAtDeadline(RequestId id, const LiveRequest& live,
                       const absl::StatusOr<Result>& result);
  const absl::StatusOr<Result>& Alone(int kind);

  void CountPlan(const StepPlan& plan);
  void HashPlan(const StepPlan& plan);
  void CheckAdmissions();
  void CheckFirst();
  void CheckEnd();

  const int64_t num_events_;
  const SimCase case_;
  Dice dice_;
  std::shared_ptr<AdmissionLog> log_;  // null: no trace
  SimModel model_;
  std::shared_ptr<SimModel> draft_source_;
  std::unique_ptr<DraftModel> draft_;  // null: nothing is verified
  PersistentGroups groups_;
  ThreadPool threads_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::optional<absl::StatusOr<Result>>> alone_;  // by kind
  std::vector<SearchStates> states_alone_;                    // as well
  int64_t max_steps_as_first_ = 0;

  int64_t now_ = 0;
  int64_t next_arrival_ = 0;
  int64_t next_id_ = 0;
  int64_t num_plans_ = 0;
  int64_t num_failures_ = 0;
  std::map<RequestId, LiveRequest> live_;
  std::deque<StepInFlight> in_flight_;
  int num_empty_steps_ = 0;  // one after the other
  // While the scheduler is called.
  std::optional<RequestId> submitted_;
  std::set<RequestId> cancelled_;
  const StepInFlight* answered_ = nullptr;
  bool expires_ = false;
  SimReport report_;
};

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
    description.verifies_drafts = description.has_draft_model = true;
    draft_source_ = std::make_shared<SimModel>(
        case_.draft_model, [](RequestId) { return SimModel::Asker{}; });
    draft_ = *DraftModel::Create(draft_source_, *ThreadPool::Create(1));
  }
  scheduler_ = std::make_unique<Scheduler>(description, scheduling);
  for (const Request& request : case_.requests) {
    const int64_t size =
        std::ssize(request.prompt_tokens) +
        NumSequences(request.params) * *request.params.max_new_tokens;
    max_steps_as_first_ = std::max(max_steps_as_first_, 50 + 2 * size);
  }
}

template <typename... Parts>
void Simulation::Fail(const Parts&... parts) {
  if (!ok()) return;
  report_.fault = std::string(Internal(parts...).message());
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

// Plans are run as they are written, in their order; their answers are read
// when the clock says so.
void Simulation::RunStep(StepPlan plan) {
  CountPlan(plan);
  HashPlan(plan);
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
    if (draft_ != nullptr) draft_->ForgetEnded(plan.ended);
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
  } else {
    groups_.Advance(*step.result);
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
  if (draft_ == nullptr) return result;
  ASSIGN_OR_RETURN(result.drafts, draft_->Run(plan));
  draft_source_->PoisonFree(draft_->pages(), HostPool(0));
  return result;
}

void Simulation::SpoilAnswer(StepInFlight* step) {
  std::vector<SelectionResult>& answers = step->result->selections;
  if (answers.empty()) return;
  ++report_.figures.num_wrong_answers;
  SelectionResult& answer = answers[dice_.Any(0, std::ssize(answers) - 1)];
  switch (dice_.Any(0, 2)) {
    case 0:
      answers.pop_back();
      step->is_cut = true;
      return;
    case 1:
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

void Simulation::OnDone(RequestId id, const absl::StatusOr<Result>& result) {
  const auto found = live_.find(id);
  if (found == live_.end()) return Fail("request ", id, " is answered twice");
  const LiveRequest live = found->second;
  live_.erase(found);
  Hash(id.value * 31 + static_cast<int>(result.status().code()));
  if (expires_) return CheckAtDeadline(id, live, result);
  if (result.ok()) return CheckResult(id, live, result);
  const std::string fault = CheckError(id, live, result.status());
  if (fault.empty()) {
    report_.figures.num_cancelled += absl::IsCancelled(result.status());
    report_.figures.num_refused += submitted_ == id;
    return;
  }
  if (result.status() == Alone(live.kind).status()) {
    ++report_.figures.num_results;
    return;
  }
  Fail("request ", id, " ended with ", result.status().ToString(), ": ", fault);
}

std::string Simulation::CheckError(RequestId id, const LiveRequest& live,
                                   const absl::Status& status) const {
  if (submitted_ == id) {
    const bool is_refused =
        absl::IsResourceExhausted(status) &&
        NumPagesOf(case_, case_.requests[live.kind]) > case_.model.num_pages;
    return is_refused ? "" : "it fits";
  }
  if (absl::IsCancelled(status)) {
    return cancelled_.count(id) > 0 ? "" : "nobody cancelled it";
  }
  if (answered_ == nullptr) return "no step is answered";
  if (!answered_->result.ok()) {
    if (status != answered_->result.status()) return "the step says otherwise";
    return id < answered_->first_after ? "" : "it came after the step";
  }
  if (answered_->is_cut)
    return absl::IsInternal(status) ? "" : "nobody said so";
  return answered_->wrong_answer == id ? "" : "its answer was right";
}

void Simulation::CheckResult(RequestId id, const LiveRequest& live,
                             const absl::StatusOr<Result>& result) {
  ++report_.figures.num_results;
  const absl::StatusOr<Result>& alone = Alone(live.kind);
  if (!alone.ok()) {
    return Fail("request ", id, " has a result; alone it has ",
                alone.status().ToString());
  }
  const bool is_same = case_.requests[live.kind].params.speculate
                           ? SameHypotheses(*result, *alone)
                           : SameResult(*result, *alone);
  if (!is_same) {
    return Fail("request ", id, " of kind ", live.kind,
                " has another result than alone");
  }
  const Usage& usage = result->usage;
  Hash(usage.num_cached_tokens);
  report_.figures.num_cached_tokens += usage.num_cached_tokens;
  report_.figures.num_accepted_tokens += usage.num_accepted_tokens;
  const int64_t most = live.may_share ? usage.num_prompt_tokens - 1 : 0;
  if (usage.num_cached_tokens < 0 || usage.num_cached_tokens > most) {
    Fail("request ", id, " has ", usage.num_cached_tokens,
         " cached tokens, there can be ", most);
  }
}

void Simulation::CheckAtDeadline(RequestId id, const LiveRequest& live,
                                 const absl::StatusOr<Result>& result) {
  if (!live.deadline || *live.deadline > now_) {
    return Fail("request ", id, " ends before its deadline");
  }
  std::string fault;
  if (result.ok()) {
    ++report_.figures.num_early_results;
    (void)Alone(live.kind);
    fault = CheckBestSoFar(case_.requests[live.kind].params, *result,
                           states_alone_[live.kind], live.num_decided);
  } else {
    ++report_.figures.num_too_late;
    if (!absl::IsDeadlineExceeded(result.status())) {
      fault = result.status().ToString();
    } else if (live.num_decided > 0) {
      fault = "it has tokens";
    }
  }
  if (!fault.empty()) Fail("request ", id, " at its deadline: ", fault);
}

const absl::StatusOr<Result>& Simulation::Alone(int kind) {
  std::optional<absl::StatusOr<Result>>& alone = alone_[kind];
  if (!alone) {
    alone =
        SimulateAlone(case_, case_.requests[kind],
                      std::make_unique<StatesWatcher>(&states_alone_[kind]));
  }
  return *alone;
}

// Chunks that end no prompt say not whose they are: those that follow on one
// another count as one.
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

// Whoever is admitted has his turn before all that still wait; where there are
// tenants, before all of his own tenant and priority.
void Simulation::CheckAdmissions() {
  if (log_ == nullptr) return;
  for (const RequestId id : log_->Take()) {
    const auto admitted = live_.find(id);
    if (admitted == live_.end()) continue;
    admitted->second.is_admitted = true;
    for (const auto& [other, live] : live_) {
      if (live.is_admitted || admitted->second.turn < live.turn) continue;
      if (live.tenant != admitted->second.tenant ||
          (case_.num_tenants > 1 &&
           live.priority != admitted->second.priority)) {
        continue;
      }
      Fail("request ", id, " is admitted before request ", other,
           ", whose turn comes first");
    }
  }
}

void Simulation::CheckFirst() {
  const auto first = std::min_element(live_.begin(), live_.end(),
                                      [](const auto& a, const auto& b) {
                                        return a.second.turn < b.second.turn;
                                      });
  if (first == live_.end()) return;
  const int64_t num_steps = ++first->second.num_steps_as_first;
  // It may give its turn to other tenants, but has its share.
  const int64_t most = max_steps_as_first_ * (case_.num_tenants > 1 ? 4 : 1);
  report_.figures.max_first_share =
      std::max(report_.figures.max_first_share,
               static_cast<double>(num_steps) / static_cast<double>(most));
  if (num_steps <= most) return;
  Fail("request ", first->first, " starves: ", num_steps,
       " steps as the first by turn");
}

void Simulation::CheckEnd() {
  const Scheduler& scheduler = *scheduler_;
  const PagePool& pool = scheduler.pool();
  const int num_cached = scheduler.tree().num_pages();
  if (!live_.empty()) Fail(live_.size(), " requests have no answer");
  if (scheduler.num_waiting() != 0 || scheduler.num_running() != 0 ||
      scheduler.num_away() != 0) {
    Fail("requests are left in the scheduler");
  }
  if (pool.num_held() != num_cached || pool.num_idle() != num_cached) {
    Fail("in the end ", pool.num_held(), " pages are held and ",
         pool.num_idle(), " are idle; the tree has ", num_cached);
  }
  if (scheduler.host_pool().num_held() != 0) {
    Fail("in the end ", scheduler.host_pool().num_held(),
         " host slots are held");
  }
  if (!scheduler.tree().FillingPages().empty()) Fail("pages are being filled");
  if (groups_.num_groups() != 0) Fail("the executor knows groups");
  if (model_.num_sequences() != 0) Fail("the model knows sequences");
  if (draft_ != nullptr &&
      (draft_->num_sequences() != 0 || draft_->pages().num_held() != 0)) {
    Fail("the draft model knows sequences");
  }
}

}  // namespace

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
