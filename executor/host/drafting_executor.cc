#include "executor/host/drafting_executor.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/memory.h"
#include "base/status.h"
#include "exec_request/execute_once.h"
#include "exec_request/fill_drafts.h"
#include "executor/host/catch_model_errors.h"
#include "executor/host/drafted_groups.h"
#include "executor/host/executor_thread.h"

namespace espalier {
namespace {

// Drafts of a plan, and their cost.
struct Drafted {
  std::vector<DraftedTokens> drafts = {};
  absl::Duration time = {};
  int num_rows = 0;
  absl::Status status = absl::OkStatus();
};

// Replaces a pending draft by its tokens.
// REQUIRES: the step that verified the draft has ended.
void TakePending(DraftedTokens* draft) {
  if (draft->pending.empty()) return;
  draft->tokens = draft->pending.Tokens();
  draft->logits = {};  // it has read them
  draft->pending = {};
}

// A plan in flight. Its result is complete when both threads have written their
// parts; neither uses it afterwards.
struct PlanOnItsWay {
  // Passed to the executor once it is complete and all earlier plans were.
  StepPlan plan;
  bool is_expanded = false;
  bool waits_for_drafts = false;
  bool was_handed_on = false;
  DraftedGroups::Asked asked;  // set if is_expanded
  // Previous plan, if this one is expanded without that plan's result.
  DraftedGroups::Unread unread;

  StepExecutor::Done done;
  std::optional<absl::StatusOr<StepResult>> result;
  bool was_result_applied = false;  // by DraftedGroups
  Drafted drafted;
  bool is_drafting = false;

  bool is_answered() const { return was_result_applied && !is_drafting; }
  void Answer() {
    if (result->ok()) {
      UntilThereIsMemory([&] {
        for (DraftedTokens& draft : drafted.drafts) TakePending(&draft);
        asked.Restore(&drafted.drafts, &**result);
      });
      (*result)->drafts = std::move(drafted.drafts);
      (*result)->draft_time = drafted.time;
      (*result)->num_draft_rows = drafted.num_rows;
      (*result)->draft_status = std::move(drafted.status);
    }
    std::exchange(done, nullptr)(*std::move(result));
  }
};

ModelDescription WithDraftModel(ModelDescription description,
                                int max_draft_context) {
  description.has_draft_model = true;
  description.drafts_before_steps = true;
  description.drafts_ahead = true;
  description.max_draft_context = max_draft_context;
  return description;
}

}  // namespace

// The draft model with its thread, and the plans in flight, in order. The
// thread shares ownership of this, which can therefore outlive the executor.
class DraftingExecutor::Drafts {
 public:
  Drafts(std::shared_ptr<StepExecutor> steps, std::unique_ptr<DraftModel> model)
      : steps_(std::move(steps)),
        page_size_(steps_->description().page_size),
        may_pend_(steps_->description().verifies_pending_drafts),
        may_follow_(may_pend_ && steps_->description().follows_pending_drafts &&
                    model->follows_verification()),
        model_(std::move(model)),
        max_draft_context_(model_->max_tokens()) {}

  // Throws std::system_error.
  static void StartThread(const std::shared_ptr<Drafts>& drafts) {
    drafts->thread_.Start(drafts);
  }
  // Waits until all plans were passed to the executor, then ends the thread.
  // Within a `done` it does not wait, since this may be the thread that drafts
  // or passes plans on; the draft thread then ends by itself after the last
  // plan.
  void End() {
    std::unique_lock lock(mutex_);
    if (answering_ == std::this_thread::get_id()) {
      ends_by_itself_ = true;
      lock.unlock();
      return EndIfAllHandedOn();
    }
    all_handed_on_.wait(lock, [this] { return WereAllHandedOn(); });
    lock.unlock();
    LetGo();
  }

  const ModelDescription& description() const { return steps_->description(); }
  int max_plans_in_flight() const { return steps_->max_plans_in_flight(); }
  int max_draft_context() const { return max_draft_context_; }

  static void Start(const std::shared_ptr<Drafts>& drafts, StepPlan plan,
                    Done done) {
    const auto started =
        UntilThereIsMemory([] { return std::make_shared<PlanOnItsWay>(); });
    started->done = std::move(done);
    started->plan = std::move(plan);
    UntilThereIsMemory([&] {
      const std::lock_guard lock(drafts->mutex_);
      drafts->plans_.push_back(started);
    });
    MakeProgress(drafts);
  }

 private:
  // Advances all plans as far as possible. Plans that depend on a result are
  // expanded before that result is delivered, because the device waits for
  // them.
  static void MakeProgress(const std::shared_ptr<Drafts>& drafts) {
    ExpandPlans(drafts);
    HandOnPlans(drafts);
    drafts->AnswerPlans();
  }

  // Expands plans and applies results, in the order of the plans. One thread at
  // a time does this on behalf of all. It holds no lock while it waits for
  // memory, so the other threads continue.
  static void ExpandPlans(const std::shared_ptr<Drafts>& drafts) {
    std::unique_lock lock(drafts->mutex_);
    if (std::exchange(drafts->is_expanding_, true)) return;
    while (const std::shared_ptr<PlanOnItsWay> plan = drafts->NextToExpand()) {
      const bool is_expanded = plan->is_expanded;
      lock.unlock();
      if (is_expanded) {
        UntilThereIsMemory(
            [&] { drafts->groups_.Advance(&plan->asked, &*plan->result); });
      } else {
        plan->asked = UntilThereIsMemory(
            [&] { return drafts->groups_.Expand(&plan->plan, plan->unread); });
        StartDrafting(drafts, plan);
      }
      lock.lock();
      (is_expanded ? plan->was_result_applied : plan->is_expanded) = true;
    }
    drafts->is_expanding_ = false;
  }

  // Returns the next plan to process: the first one that is not expanded, if
  // all results that it needs are applied; or an expanded one whose result has
  // arrived and is not applied. Null if there is none.
  std::shared_ptr<PlanOnItsWay> NextToExpand() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const PlanOnItsWay* unread = nullptr;  // the last one not taken
    int num_unread = 0;
    for (const std::shared_ptr<PlanOnItsWay>& plan : plans_) {
      if (!plan->is_expanded) {
        const bool waits = num_unread > 0 &&
                           DraftedGroups::HasContinuations(plan->plan) &&
                           !(num_unread == 1 && Follow(*unread, plan.get()));
        return waits ? nullptr : plan;
      }
      if (plan->result.has_value() && !plan->was_result_applied) return plan;
      if (plan->was_result_applied) continue;
      unread = plan.get();
      ++num_unread;
    }
    return nullptr;
  }

  // Returns true, and sets plan->unread, if the plan can be expanded before the
  // result of `before` has arrived.
  bool Follow(const PlanOnItsWay& before, PlanOnItsWay* plan) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!may_follow_ || before.waits_for_drafts || before.is_drafting) {
      return false;
    }
    const DraftedGroups::Unread unread = {&before.asked, before.drafted.drafts};
    if (!groups_.CanFollow(plan->plan, unread)) return false;
    plan->unread = unread;
    return true;
  }

  // Copies the draft model's part of the plan, and runs it on the draft thread.
  // A plan without drafting does not wait for that thread.
  static void StartDrafting(const std::shared_ptr<Drafts>& drafts,
                            const std::shared_ptr<PlanOnItsWay>& started) {
    const StepPlan& plan = started->plan;
    const auto asked = UntilThereIsMemory([&] {
      auto copy = std::make_shared<StepPlan>();
      copy->ended = plan.ended;
      copy->stop = plan.stop;
      copy->max_draft_step_tokens = plan.max_draft_step_tokens;
      copy->drafting = plan.drafting;
      return copy;
    });
    const bool drafts_tokens = !asked->drafting.empty();
    const auto is_verified_now = [](const DraftSequence& sequence) {
      return sequence.verified_by.plan_row >= 0;
    };
    {
      const std::lock_guard lock(drafts->mutex_);
      started->is_drafting = drafts_tokens;
      started->waits_for_drafts =
          std::ranges::any_of(asked->drafting, is_verified_now);
    }
    if (drafts_tokens) {
      drafts->Post([drafts, asked, started] {
        drafts->Draft(drafts, *asked, started.get());
      });
    } else if (!asked->ended.empty()) {
      drafts->Post([drafts = drafts.get(), asked] {
        drafts->model_->ForgetEnded(asked->ended);
      });
    }
  }

  template <typename Task>
  void Post(const Task& task) {
    UntilThereIsMemory([&] { thread_.Post(task); });
  }

  // On the thread.
  static void Draft(const std::shared_ptr<Drafts>& drafts,
                    const StepPlan& asked, PlanOnItsWay* plan) {
    Drafted result;
    result.drafts = UntilThereIsMemory(
        [&] { return std::vector<DraftedTokens>(asked.drafting.size()); });
    absl::StatusOr<std::vector<DraftedTokens>> drafted =
        CatchModelErrors<std::vector<DraftedTokens>>(
            "draft model",
            [&] { return drafts->model_->Run(asked, drafts->may_pend_); },
            [] { return ResourceExhausted("not enough memory to draft"); });
    if (drafted.ok()) {
      result.drafts = *std::move(drafted);
      result.num_rows = drafts->model_->num_rows();
      result.time = drafts->model_->draft_time();
    } else if (!asked.stop.stop_requested()) {
      result.status = drafted.status();
    }
    if (plan->waits_for_drafts) {
      // No other thread uses the plan yet.
      UntilThereIsMemory([&] {
        StepPlan filled = plan->plan;
        FillDrafts(drafts->page_size_, result.drafts, &filled);
        plan->plan = std::move(filled);
      });
    }
    {
      const std::lock_guard lock(drafts->mutex_);
      plan->drafted = std::move(result);
      plan->is_drafting = false;
      plan->waits_for_drafts = false;
    }
    HandOnPlans(drafts);
    MakeProgress(drafts);  // the plan after it may go on from its drafts
  }

  bool WereAllHandedOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !is_handing_on_ && std::ranges::all_of(plans_, [](const auto& plan) {
      return plan->was_handed_on;
    });
  }

  // Releases the executor on the draft thread, because this thread may be
  // inside the executor's call of a `done`.
  void EndIfAllHandedOn() {
    {
      const std::lock_guard lock(mutex_);
      if (!ends_by_itself_ || !WereAllHandedOn()) return;
      ends_by_itself_ = false;
    }
    Post([this] { LetGo(); });  // the thread has a part in this
  }

  void LetGo() {
    steps_ = nullptr;  // finishes its plans, which may wait for drafts
    thread_.End();
  }

  // Passes complete plans to the executor, in order, one thread at a time.
  static void HandOnPlans(const std::shared_ptr<Drafts>& drafts) {
    std::unique_lock lock(drafts->mutex_);
    if (drafts->is_handing_on_) return;
    drafts->is_handing_on_ = true;
    while (const std::shared_ptr<PlanOnItsWay> plan = drafts->NextToHandOn()) {
      plan->was_handed_on = true;
      lock.unlock();
      HandOn(drafts, plan);
      lock.lock();
    }
    drafts->is_handing_on_ = false;
    drafts->all_handed_on_.notify_all();
    lock.unlock();
    drafts->EndIfAllHandedOn();
  }

  // Passes a plan to the executor. If the executor refuses a plan, it may still
  // have that plan's groups in their earlier state, while later plans continue
  // them. The next plan therefore ends these groups, so that their
  // continuations have no candidates.
  static void HandOn(const std::shared_ptr<Drafts>& drafts,
                     const std::shared_ptr<PlanOnItsWay>& plan) {
    StepPlan& step = plan->plan;
    step.drafting.clear();
    UntilThereIsMemory([&] {
      step.ended.insert(step.ended.end(), drafts->refused_groups_.begin(),
                        drafts->refused_groups_.end());
    });
    drafts->refused_groups_ = UntilThereIsMemory([&] {
      std::vector<RequestId> groups = AskedOf(step);
      groups.insert(groups.end(), step.ended.begin(), step.ended.end());
      return groups;
    });
    Done report = UntilThereIsMemory([&] {
      return Done([drafts, plan](absl::StatusOr<StepResult> result) {
        OnResult(drafts, plan.get(), std::move(result));
      });
    });
    if (ExecuteOnce(drafts->steps_.get(), std::move(step), std::move(report))) {
      drafts->refused_groups_.clear();
    }
  }

  // Returns the next plan, or null if it is not complete or does not exist.
  std::shared_ptr<PlanOnItsWay> NextToHandOn() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto next = std::ranges::find_if(
        plans_, [](const auto& plan) { return !plan->was_handed_on; });
    if (next == plans_.end() || !(*next)->is_expanded ||
        (*next)->waits_for_drafts) {
      return nullptr;
    }
    return *next;
  }

  static void OnResult(const std::shared_ptr<Drafts>& drafts,
                       PlanOnItsWay* plan, absl::StatusOr<StepResult> result) {
    {
      const std::lock_guard lock(drafts->mutex_);
      // A step that ended without reporting the verification of its drafts
      // never will, so the draft thread must not wait for it.
      for (const DraftedTokens& draft : plan->drafted.drafts) {
        DraftVerification* const verification = draft.pending.verification();
        if (verification != nullptr) verification->Fail();
      }
      plan->result = std::move(result);
    }
    MakeProgress(drafts);
  }

  // Delivers results in the order of the plans, one thread at a time.
  void AnswerPlans() {
    std::unique_lock lock(mutex_);
    if (answering_ != std::thread::id()) return;
    answering_ = std::this_thread::get_id();
    while (!plans_.empty() && plans_.front()->is_answered()) {
      const std::shared_ptr<PlanOnItsWay> plan = std::move(plans_.front());
      plans_.pop_front();
      lock.unlock();
      plan->Answer();
      lock.lock();
    }
    answering_ = {};
  }

  std::shared_ptr<StepExecutor> steps_;
  const int page_size_;
  const bool may_pend_;    // drafts may be pending when their step is executed
  const bool may_follow_;  // plans may start from an unread verification
  const std::unique_ptr<DraftModel> model_;  // used on the draft thread only
  const int max_draft_context_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<PlanOnItsWay>> plans_ ABSL_GUARDED_BY(mutex_);
  DraftedGroups groups_;  // used by the thread that is expanding
  // Groups of the plan being handed on, or of the last one if the executor
  // refused it or threw. Used by the thread that is handing on.
  std::vector<RequestId> refused_groups_;
  bool is_expanding_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id answering_ ABSL_GUARDED_BY(mutex_);  // {}: no thread
  bool is_handing_on_ ABSL_GUARDED_BY(mutex_) = false;
  bool ends_by_itself_ ABSL_GUARDED_BY(mutex_) = false;
  std::condition_variable all_handed_on_;
  ExecutorThread thread_;
};

absl::StatusOr<std::shared_ptr<DraftingExecutor>> DraftingExecutor::Create(
    std::shared_ptr<StepExecutor> steps, std::unique_ptr<DraftModel> draft) {
  const ModelDescription& model = steps->description();
  if (!model.verifies_drafts) {
    return InvalidArgument(
        "a draft model needs an executor that verifies drafts");
  }
  RETURN_IF_ERROR(CheckDraftModelFits(model, draft->description()));
  try {
    const auto drafts =
        std::make_shared<Drafts>(std::move(steps), std::move(draft));
    std::unique_ptr<DraftingExecutor> executor(new DraftingExecutor(drafts));
    Drafts::StartThread(drafts);
    return std::shared_ptr<DraftingExecutor>(std::move(executor));
  } catch (const std::exception& error) {  // std::system_error or bad_alloc
    return ResourceExhausted("cannot start the thread of a draft model: ",
                             error.what());
  }
}

DraftingExecutor::DraftingExecutor(std::shared_ptr<Drafts> drafts)
    : drafts_(std::move(drafts)),
      description_(WithDraftModel(drafts_->description(),
                                  drafts_->max_draft_context())) {}

DraftingExecutor::~DraftingExecutor() { drafts_->End(); }

int DraftingExecutor::max_plans_in_flight() const {
  return drafts_->max_plans_in_flight();
}

void DraftingExecutor::Execute(StepPlan plan, Done done) {
  const std::shared_ptr<Drafts> drafts = drafts_;  // a `done` may drop this
  Drafts::Start(drafts, std::move(plan), std::move(done));
}

}  // namespace espalier
