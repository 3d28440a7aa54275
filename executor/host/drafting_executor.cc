#include "executor/host/drafting_executor.h"

#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "executor/host/executor_thread.h"

namespace espalier {
namespace {

// What came of the drafting of a plan.
struct Drafted {
  std::vector<DraftedTokens> drafts = {};
  absl::Duration time = {};
  int num_rows = 0;
};

// A plan that was started. It is answered when both threads have written their
// part, and neither has it then.
struct PlanOnItsWay {
  StepExecutor::Done done;
  std::optional<absl::StatusOr<StepResult>> result;
  Drafted drafted;
  bool is_drafting = false;

  bool is_answered() const { return result.has_value() && !is_drafting; }
  void Answer() {
    if (result->ok()) {
      (*result)->drafts = std::move(drafted.drafts);
      (*result)->draft_time = drafted.time;
      (*result)->num_draft_rows = drafted.num_rows;
    }
    done(*std::move(result));
  }
};

ModelDescription WithDraftModel(ModelDescription description,
                                int max_draft_context) {
  description.has_draft_model = true;
  description.max_draft_context = max_draft_context;
  return description;
}

}  // namespace

// The draft model with its thread, which has a part in it and so can outlive
// the executor; and the plans on their way, in their order.
class DraftingExecutor::Drafts {
 public:
  explicit Drafts(std::unique_ptr<DraftModel> model)
      : model_(std::move(model)), max_draft_context_(model_->max_tokens()) {}

  // Throws std::system_error.
  static void StartThread(const std::shared_ptr<Drafts>& drafts) {
    drafts->thread_.Start(drafts);
  }
  void EndThread() { thread_.End(); }

  int max_draft_context() const { return max_draft_context_; }

  // Takes what concerns the draft model of `*plan`, and starts that. Where
  // nothing is drafted the plan's answer has no part in it.
  static std::shared_ptr<PlanOnItsWay> Start(
      const std::shared_ptr<Drafts>& drafts, StepPlan* plan, Done done) {
    const auto asked = UntilThereIsMemory([&] {
      auto copy = std::make_shared<StepPlan>();
      copy->ended = plan->ended;
      copy->stop = plan->stop;
      copy->max_draft_step_tokens = plan->max_draft_step_tokens;
      return copy;
    });
    asked->drafting = std::exchange(plan->drafting, {});
    const auto started =
        UntilThereIsMemory([] { return std::make_shared<PlanOnItsWay>(); });
    started->done = std::move(done);
    started->is_drafting = !asked->drafting.empty();
    UntilThereIsMemory([&] {
      const std::lock_guard lock(drafts->mutex_);
      drafts->plans_.push_back(started);
    });
    if (started->is_drafting) {
      drafts->Post([drafts = drafts.get(), asked, started] {
        drafts->Draft(*asked, started.get());
      });
    } else if (!asked->ended.empty()) {
      drafts->Post([drafts = drafts.get(), asked] {
        drafts->model_->ForgetEnded(asked->ended);
      });
    }
    return started;
  }

  void OnResult(PlanOnItsWay* plan, absl::StatusOr<StepResult> result) {
    {
      const std::lock_guard lock(mutex_);
      plan->result = std::move(result);
    }
    AnswerPlans();
  }

 private:
  template <typename Task>
  void Post(const Task& task) {
    UntilThereIsMemory([&] { thread_.Post(task); });
  }

  // On the thread.
  void Draft(const StepPlan& asked, PlanOnItsWay* plan) {
    const Stopwatch watch;
    Drafted result;
    result.drafts = UntilThereIsMemory(
        [&] { return std::vector<DraftedTokens>(asked.drafting.size()); });
    try {
      absl::StatusOr<std::vector<DraftedTokens>> drafted = model_->Run(asked);
      if (drafted.ok()) {
        result.drafts = *std::move(drafted);
        result.num_rows = model_->num_rows();
      }
    } catch (const std::exception&) {  // of the model, or bad_alloc
    }
    result.time = watch.Elapsed();
    {
      const std::lock_guard lock(mutex_);
      plan->drafted = std::move(result);
      plan->is_drafting = false;
    }
    AnswerPlans();
  }

  // In the order of the plans, by one thread at a time.
  void AnswerPlans() {
    std::unique_lock lock(mutex_);
    if (is_answering_) return;
    is_answering_ = true;
    while (!plans_.empty() && plans_.front()->is_answered()) {
      const std::shared_ptr<PlanOnItsWay> plan = std::move(plans_.front());
      plans_.pop_front();
      lock.unlock();
      plan->Answer();
      lock.lock();
    }
    is_answering_ = false;
  }

  const std::unique_ptr<DraftModel> model_;  // touched on the thread
  const int max_draft_context_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<PlanOnItsWay>> plans_ ABSL_GUARDED_BY(mutex_);
  bool is_answering_ ABSL_GUARDED_BY(mutex_) = false;
  ExecutorThread thread_;
};

absl::StatusOr<std::shared_ptr<DraftingExecutor>> DraftingExecutor::Create(
    std::shared_ptr<StepExecutor> steps, std::unique_ptr<DraftModel> draft) {
  const ModelDescription& model = steps->description();
  if (!model.verifies_drafts) {
    return InvalidArgument(
        "a draft model needs an executor that verifies drafts");
  }
  if (draft->description().vocab_size != model.vocab_size) {
    return InvalidArgument("the draft model has a vocabulary of ",
                           draft->description().vocab_size,
                           " tokens, the model one of ", model.vocab_size);
  }
  try {
    const auto drafts = std::make_shared<Drafts>(std::move(draft));
    std::unique_ptr<DraftingExecutor> executor(
        new DraftingExecutor(std::move(steps), drafts));
    Drafts::StartThread(drafts);
    return std::shared_ptr<DraftingExecutor>(std::move(executor));
  } catch (const std::exception& error) {  // of the system, or bad_alloc
    return ResourceExhausted("cannot start the thread of a draft model: ",
                             error.what());
  }
}

DraftingExecutor::DraftingExecutor(std::shared_ptr<StepExecutor> steps,
                                   std::shared_ptr<Drafts> drafts)
    : steps_(std::move(steps)),
      drafts_(std::move(drafts)),
      description_(WithDraftModel(steps_->description(),
                                  drafts_->max_draft_context())) {}

DraftingExecutor::~DraftingExecutor() {
  steps_ = nullptr;  // finishes its plans, which may wait for drafts
  drafts_->EndThread();
}

void DraftingExecutor::Execute(StepPlan plan, Done done) {
  const auto started = Drafts::Start(drafts_, &plan, std::move(done));
  steps_->Execute(std::move(plan), [drafts = drafts_, started](
                                       absl::StatusOr<StepResult> result) {
    drafts->OnResult(started.get(), std::move(result));
  });
}

}  // namespace espalier
