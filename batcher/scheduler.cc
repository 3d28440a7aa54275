#include "batcher/scheduler.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/wording.h"
#include "beam/selection_options.h"
#include "pages/validate.h"

namespace espalier {
namespace {

// The field of the request format that NumSequences is of.
std::string_view CountName(const GenerationParams& params) {
  return IsBeamSearch(params) ? "num_beams"
         : params.best_of     ? "best_of"
                              : "num_return_sequences";
}

// What it is that needs so much, under the names of the request format.
std::string DescribeSize(const Request& request) {
  const GenerationParams& params = request.params;
  return Concat(Counted(request.prompt_tokens.size(), "prompt token"), ", ",
                CountName(params), " ", NumSequences(params),
                ", max_new_tokens ", *params.max_new_tokens);
}

// What to change of a request that needs too many pages: what is above its
// least, unless the prompt alone takes them.
std::string HowToFit(const Request& request, const PagePool& pool) {
  const int64_t num_prompt_tokens = request.prompt_tokens.size();
  const bool many = NumSequences(request.params) > 1;
  const bool longer = *request.params.max_new_tokens > 1;
  if (WorstCasePages(num_prompt_tokens, num_prompt_tokens, 1,
                     pool.page_size()) > pool.num_pages() ||
      (!many && !longer)) {
    return "shorten the prompt";
  }
  return Concat("lower ", many ? CountName(request.params) : "",
                many && longer ? " or " : "", longer ? "max_new_tokens" : "");
}

absl::Status TooFewPages(const Request& request, int64_t needed,
                         const PagePool& pool) {
  absl::Status error = ResourceExhausted(
      "the request can never fit: it needs ", Counted(needed, "page"), " of ",
      Counted(pool.page_size(), "token"), " at worst (", DescribeSize(request),
      "), there are ", pool.num_pages(), "; ", HowToFit(request, pool));
  error.SetPayload(kTooFewPages, absl::Cord());
  return error;
}

// Calls `body`, which only counts or checks.
template <typename Body>
void IfThereIsMemory(const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

Scheduler::Scheduler(const ModelDescription& model,
                     const SchedulerOptions& options)
    : options_(options),
      limits_(model.limits),
      max_step_tokens_(
          std::min(options.max_step_tokens, limits_.max_step_tokens)),
      vocab_size_(model.vocab_size),
      out_of_memory_(ResourceExhausted(
          "not enough memory on the host for the request's next step")),
      pool_(model.num_pages, model.page_size) {
  const auto check = [](const absl::Status& status) {
    CHECK(status.ok()) << status.ToString();
  };
  check(CheckDescription(model));
  check(CheckOptions(options));
}

Scheduler::~Scheduler() = default;

void Scheduler::Submit(RequestId id, PreparedRequest prepared, Done done,
                       std::unique_ptr<SearchWatcher> watcher) {
  const Needs needs = NeedsOf(prepared);
  const absl::Status fits = CheckFits(prepared.request, needs);
  if (!fits.ok()) return done(fits);
  waiting_.push_back(
      {id, std::move(prepared), needs, std::move(done), std::move(watcher)});
  try {
    waiting_by_id_.emplace(id, std::prev(waiting_.end()));
  } catch (const std::bad_alloc&) {
    waiting_.pop_back();
    throw;
  }
}

Scheduler::Needs Scheduler::NeedsOf(const PreparedRequest& prepared) const {
  Needs needs = {.num_edits = WorstCaseEdits(prepared, vocab_size_),
                 .num_candidates = MaxCandidates(prepared, vocab_size_)};
  const int64_t num_best = prepared.request.params.logprobs.value_or(0);
  needs.num_best = needs.num_candidates * num_best;
  return needs;
}

Scheduler::Waiting Scheduler::TakeWaiting() {
  Waiting first = std::move(waiting_.front());
  waiting_by_id_.erase(first.id);
  waiting_.pop_front();
  return first;
}

absl::Status Scheduler::CheckFits(const Request& request,
                                  const Needs& needs) const {
  const int64_t needed = GroupPages::WorstCase(request, pool_.page_size());
  if (needed > pool_.num_pages()) return TooFewPages(request, needed, pool_);
  const std::string sizes = Concat(
      " in a step at worst (", DescribeSize(request), "), there is room for ");
  if (needs.num_edits > limits_.max_score_edits) {
    return ResourceExhausted(
        "the request can never fit: its penalties and bans edit ",
        needs.num_edits, " scores", sizes, limits_.max_score_edits);
  }
  if (needs.num_candidates > limits_.max_candidates) {
    return ResourceExhausted("the request can never fit: it ranks ",
                             needs.num_candidates, " candidates", sizes,
                             limits_.max_candidates);
  }
  if (needs.num_best > limits_.max_best_tokens) {
    return ResourceExhausted("the request can never fit: its logprobs report ",
                             needs.num_best, " tokens beside its candidates",
                             sizes, limits_.max_best_tokens);
  }
  return absl::OkStatus();
}

StepPlan Scheduler::Plan() {
  while (true) {
    StepPlan plan = UntilThereIsMemory(
        [this] { return std::exchange(next_plan_, StepPlan()); });
    try {
      WritePlan(&plan);
      if (plan.empty() && !in_flight_.empty()) {
        std::swap(next_plan_, plan);  // what ended is for the next that runs
        return plan;
      }
      if (options_.validate_steps) Validate(plan);
      Remember(plan);
      return plan;
    } catch (const std::bad_alloc&) {
      AbandonPlan(std::move(plan));
    }
  }
}

void Scheduler::WritePlan(StepPlan* plan) {
  Budget budget = {max_step_tokens_, limits_.max_beams};
  const bool waits = !in_flight_.empty() && !SomebodyRunsOn();
  for (Running& running : running_) {
    const BeamGroup& group = *running.group;
    if (!waits && !group.prefilling() && group.can_plan()) {
      PlanGroup(running, plan, &budget);
    }
  }
  for (Running& running : running_) {
    if (running.group->prefilling() && !budget.is_used_up()) {
      PlanGroup(running, plan, &budget);
    }
  }
  Admit(plan, &budget);
}

void Scheduler::AbandonPlan(StepPlan plan) {
  planned_.clear();
  planned_counts_ = {};
  next_plan_.forks = std::move(plan.forks);
  next_plan_.finished = std::move(plan.finished);
  next_plan_.ended = std::move(plan.ended);
  if (running_.empty()) {
    // Nobody is in the way of what has no memory now.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (Running& running : running_) Finish(running, out_of_memory_);
  EraseFinished();
}

bool Scheduler::SomebodyRunsOn() const {
  return std::any_of(running_.begin(), running_.end(), [](const Running& r) {
    const BeamGroup& group = *r.group;
    return group.prefilling() || (group.outstanding() && group.can_plan());
  });
}

void Scheduler::PlanGroup(Running& running, StepPlan* plan, Budget* budget) {
  BeamGroup& group = *running.group;
  int64_t& counter = group.prefilling() ? planned_counts_.num_prompt_tokens
                                        : planned_counts_.num_decode_rows;
  const size_t first_token = plan->tokens.size();
  const int first_logits = plan->num_logits;
  const size_t num_continuations = plan->continuations.size();
  // Its reservation covers its worst case, so pages cannot run out.
  const absl::Status status = group.PlanStep(
      std::max(budget->num_tokens, 1), plan, std::max(budget->num_logits, 1));
  CHECK(status.ok()) << status.ToString();
  planned_.push_back(group.id());
  const int num_tokens = static_cast<int>(plan->tokens.size() - first_token);
  counter += num_tokens;
  budget->num_tokens -= num_tokens;
  budget->num_logits -= plan->num_logits - first_logits;
  if (plan->continuations.size() > num_continuations) {
    // How many of them live is not known yet.
    const auto& slots = plan->continuations.back().tail_pages;
    budget->num_tokens -= static_cast<int>(slots.size());
    budget->num_logits -= static_cast<int>(slots.size());
  }
}

void Scheduler::Remember(const StepPlan& plan) {
  if (plan.says_nothing()) return;
  PlanInFlight remembered;
  remembered.requests = planned_;
  for (const PlanSelection& selection : plan.selections) {
    remembered.asked.push_back(selection.request);
  }
  remembered.num_selections = plan.selections.size();
  for (const GroupContinuation& continuation : plan.continuations) {
    remembered.asked.push_back(continuation.request);
  }
  for (const PlanScoring& scoring : plan.scorings) {
    remembered.scored.push_back({scoring.request, scoring.tokens.size()});
  }
  remembered.num_page_copies = static_cast<int>(plan.page_copies.size());
  in_flight_.push_back(std::move(remembered));
  // Nothing fails from here on.
  planned_.clear();
  const PlanCounts counts = std::exchange(planned_counts_, {});
  figures_.num_prompt_tokens += counts.num_prompt_tokens;
  figures_.num_decode_rows += counts.num_decode_rows;
  for (Running& running : running_) {
    running.is_known = running.is_known || running.group->was_planned();
  }
  if (in_flight_.size() == 1) CountStep(in_flight_.front());
}

bool Scheduler::CanAdmit(const Waiting& next) const {
  if (running_.empty()) return true;
  if (num_running() >= options_.max_running) return false;
  int64_t num_rows = NumSequences(next.prepared.request.params);
  Needs needs = next.needs;
  for (const Running& running : running_) {
    num_rows += running.group->num_sequences();
    needs.num_edits += running.needs.num_edits;
    needs.num_candidates += running.needs.num_candidates;
    needs.num_best += running.needs.num_best;
  }
  return num_rows <= std::min(max_step_tokens_, limits_.max_beams) &&
         needs.num_edits <= limits_.max_score_edits &&
         needs.num_candidates <= limits_.max_candidates &&
         needs.num_best <= limits_.max_best_tokens;
}

void Scheduler::Admit(StepPlan* plan, Budget* budget) {
  while (!waiting_.empty() && !budget->is_used_up()) {
    if (!CanAdmit(waiting_.front())) return;
    const int64_t num_pages = GroupPages::WorstCase(
        waiting_.front().prepared.request, pool_.page_size());
    // It waits until others have ended. Asked before, for the pool would
    // describe at every plan how full it is.
    if (pool_.num_reserved() + num_pages > pool_.num_pages()) return;
    Waiting next = TakeWaiting();
    try {
      absl::StatusOr<PageReservation> pages = pool_.Reserve(num_pages);
      CHECK(pages.ok()) << pages.status().ToString();
      Start(next, *std::move(pages));
    } catch (const std::bad_alloc&) {
      next.done(out_of_memory_);
      continue;
    }
    PlanGroup(running_.back(), plan, budget);
  }
}

void Scheduler::Start(Waiting& next, PageReservation pages) {
  if (running_.size() == running_.capacity()) {
    running_.reserve(2 * running_.size() + 1);
  }
  auto group = std::make_unique<BeamGroup>(
      next.id, std::move(next.prepared), std::move(pages), &pool_,
      &sequence_ids_, options_.trace.get());
  running_.push_back({std::move(group), next.needs, std::move(next.done),
                      std::move(next.watcher)});
}

Scheduler::Running* Scheduler::Find(RequestId id) {
  const size_t count = running_.size();
  for (size_t i = 0; i < count; ++i) {
    if (found_ >= count) found_ = 0;
    Running& running = running_[found_++];
    if (running.group->id() != id) continue;
    return running.group->done() ? nullptr : &running;
  }
  return nullptr;
}

absl::Status Scheduler::CheckAnswers(const PlanInFlight& plan,
                                     const StepResult& result) const {
  if (result.selections.size() != plan.asked.size()) {
    return Internal("a step of ", plan.asked.size(), " selections was ",
                    "answered with ", result.selections.size());
  }
  for (size_t i = 0; i < plan.asked.size(); ++i) {
    const RequestId answered = result.selections[i].request;
    if (answered == plan.asked[i]) continue;
    return Internal("selection ", i, " of a step is of request ", plan.asked[i],
                    ", its answer of ", answered);
  }
  const auto agree = [](const std::pair<RequestId, size_t>& asked,
                        const ScoringResult& answer) {
    return asked.first == answer.request;
  };
  if (std::equal(plan.scored.begin(), plan.scored.end(),
                 result.scorings.begin(), result.scorings.end(), agree)) {
    return absl::OkStatus();
  }
  return Internal("a step of ", plan.scored.size(), " scorings of prompts was ",
                  "answered with ", result.scorings.size(), " or with others");
}

void Scheduler::Advance(absl::StatusOr<StepResult> result) {
  CHECK(!in_flight_.empty()) << "a result without a plan";
  const PlanInFlight plan = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (result.ok()) {
    try {
      const absl::Status answers = CheckAnswers(plan, *result);
      if (!answers.ok()) result = answers;
    } catch (const std::bad_alloc&) {
      result = out_of_memory_;
    }
  }
  if (result.ok()) {
    figures_.forward_time += result->forward_time;
    figures_.select_time += result->select_time;
    for (size_t i = 0; i < plan.scored.size(); ++i) {
      TakeScoring(result->scorings[i], plan.scored[i].second);
    }
    for (const SelectionResult& selection : result->selections) {
      AdvanceGroup(selection);
    }
  } else {
    for (const RequestId request : plan.requests) {
      Running* running = Find(request);
      if (running != nullptr) Finish(*running, result.status());
    }
  }
  EraseFinished();
  if (!in_flight_.empty()) CountStep(in_flight_.front());
  if (options_.validate_steps) {
    IfThereIsMemory([this] { Validate(next_plan_); });
  }
}

void Scheduler::TakeScoring(const ScoringResult& result, size_t num_tokens) {
  Running* running = Find(result.request);
  if (running == nullptr) return;
  absl::Status status = out_of_memory_;
  IfThereIsMemory([&] {
    status = running->group->TakeScoring(result, num_tokens, vocab_size_);
  });
  if (!status.ok()) Finish(*running, status);
}

void Scheduler::AdvanceGroup(const SelectionResult& result) {
  // It may have been cancelled, or have ended a step before.
  Running* running = Find(result.request);
  if (running == nullptr) return;
  try {
    Advance(*running, result);
  } catch (const std::bad_alloc&) {
    Finish(*running, out_of_memory_);
  }
}

void Scheduler::Advance(Running& running, const SelectionResult& result) {
  BeamGroup& group = *running.group;
  absl::Status status = result.error;
  if (status.ok()) status = group.CheckAnswer(result, vocab_size_);
  if (status.ok()) status = group.Advance(result, &next_plan_);
  if (!status.ok()) return Finish(running, status);
  if (running.watcher != nullptr) running.watcher->OnStep(group.strategy());
  if (group.done()) Finish(running, group.TakeResult());
}

void Scheduler::Finish(Running& running, absl::StatusOr<Result> result) {
  UntilThereIsMemory(
      [&] { running.group->Drop(running.is_known ? &next_plan_ : nullptr); });
  IfThereIsMemory([&] { running.group->TellEnd(result); });
  if (result.ok()) {
    figures_.num_generated_tokens += result->usage.num_generated_tokens;
  }
  running.done(std::move(result));
}

void Scheduler::EraseFinished() {
  std::erase_if(running_, [](const Running& r) { return r.group->done(); });
}

void Scheduler::Cancel(RequestId id, const absl::Status& why) {
  const auto waiting = waiting_by_id_.find(id);
  if (waiting != waiting_by_id_.end()) {
    const Done done = std::move(waiting->second->done);
    waiting_.erase(waiting->second);
    waiting_by_id_.erase(waiting);
    done(why);
    return;
  }
  Running* running = Find(id);
  if (running == nullptr) return;
  Finish(*running, why);
  EraseFinished();
}

void Scheduler::CancelAll(const absl::Status& why) {
  waiting_by_id_.clear();
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    waiting.done(why);
  }
  for (Running& running : running_) Finish(running, why);
  EraseFinished();
}

void Scheduler::CountStep(const PlanInFlight& plan) {
  if (plan.requests.empty()) return;  // it only says who ended
  ++figures_.num_steps;
  int64_t unshared = 0;
  IfThereIsMemory([&] {
    for (const PageTable* table : Tables()) unshared += table->pages().size();
  });
  const int64_t held = pool_.num_held();
  figures_.peak_pages = std::max(figures_.peak_pages, held);
  figures_.peak_unshared_pages =
      std::max(figures_.peak_unshared_pages, unshared);
  figures_.page_steps += held;
  figures_.unshared_page_steps += unshared;
  int num_copies = plan.num_page_copies;
  for (size_t i = plan.num_selections; i < plan.asked.size(); ++i) {
    const Running* running = Find(plan.asked[i]);
    if (running == nullptr) continue;
    figures_.num_decode_rows += running->group->num_live_beams();
    num_copies += running->group->pages().num_tail_copies_ahead();
  }
  figures_.num_tail_copies += num_copies;
  figures_.max_tail_copies = std::max(figures_.max_tail_copies, num_copies);
}

std::vector<const PageTable*> Scheduler::Tables() const {
  std::vector<const PageTable*> tables;
  for (const Running& running : running_) {
    const auto more = running.group->pages().Tables();
    tables.insert(tables.end(), more.begin(), more.end());
  }
  return tables;
}

std::vector<const PageRef*> Scheduler::Tails() const {
  std::vector<const PageRef*> tails;
  for (const Running& running : running_) {
    const auto more = running.group->pages().Tails();
    tails.insert(tails.end(), more.begin(), more.end());
  }
  return tails;
}

void Scheduler::Validate(const StepPlan& plan) const {
  const auto check = [](const absl::Status& status) {
    CHECK(status.ok()) << status.ToString();
  };
  check(ValidatePages(pool_, Tables(), Tails()));
  check(ValidateCopies(pool_, plan.page_copies));
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    check(ValidateWrites(pool_, plan.row_pages(i), plan.rows[i].first_position,
                         plan.rows[i].num_tokens));
  }
  std::vector<PageId> tails;
  for (const GroupContinuation& continuation : plan.continuations) {
    tails.insert(tails.end(), continuation.tail_pages.begin(),
                 continuation.tail_pages.end());
  }
  check(ValidateTails(pool_, tails));
  for (const Running& running : running_) {
    const GroupPages& pages = running.group->pages();
    check(ValidateReservation(pages.Tables(), pages.Tails(),
                              pages.num_reserved_pages()));
  }
}

}  // namespace espalier
