#include "executor/host/model_executor.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "executor/drafts/catch_model_errors.h"
#include "executor/drafts/draft_model.h"
#include "executor/drafts/step_drafter.h"
#include "executor/host/executor_thread.h"
#include "executor/host/persistent_groups.h"
#include "executor/host/report_logprobs.h"
#include "executor/host/select_all.h"

namespace espalier {

namespace {

absl::Status CheckBounds(const ModelExecutorOptions& options) {
  const auto check = [](const char* name, int64_t least, int64_t value) {
    return value >= least ? absl::OkStatus()
                          : InvalidArgument(name, " must be at least ", least,
                                            ", got ", value);
  };
  RETURN_IF_ERROR(check("max_beams", 0, options.max_beams));
  RETURN_IF_ERROR(check("max_candidates", 1, options.max_candidates));
  return check("max_score_edits", 0, options.max_score_edits);
}

// Returns `description` with the limits of `options`.
ModelDescription Limited(ModelDescription description,
                         const ModelExecutorOptions& options) {
  constexpr int kMaxBeams = 8192;
  constexpr int64_t kMaxLogits = int64_t{1} << 28;  // 1 GiB
  const int64_t num_logits_rows =
      kMaxLogits / std::max(1, description.vocab_size);
  const int max_beams = options.max_beams > 0
                            ? options.max_beams
                            : static_cast<int>(std::clamp<int64_t>(
                                  num_logits_rows, 1, kMaxBeams));
  StepLimits& limits = description.limits;
  limits.max_beams = std::min(limits.max_beams, max_beams);
  limits.max_candidates =
      std::min(limits.max_candidates, options.max_candidates);
  limits.max_best_tokens =
      std::min(limits.max_best_tokens, options.max_candidates);
  limits.max_score_edits =
      std::min(limits.max_score_edits, options.max_score_edits);
  return description;
}

}  // namespace

// The model and the state of its steps, used on the worker thread only. That
// thread shares ownership of this, which can therefore outlive the executor.
class ModelExecutor::Worker {
 public:
  //   description  the model's, limited
  //   draft        null: none
  Worker(std::shared_ptr<Model> model, ModelDescription description,
         std::shared_ptr<DraftModel> draft, std::shared_ptr<ThreadPool> pool,
         const ModelExecutorOptions& options)
      : options_(options),
        description_(std::move(description)),
        model_(std::move(model)),
        pool_(std::move(pool)),
        groups_(model_->description().page_size) {
    description_.has_token_masks = options_.run_ahead;  // PersistentGroups
    description_.limits.max_drafted_length =
        draft == nullptr ? 0 : draft->max_tokens();
    if (draft == nullptr) return;
    drafter_.emplace(std::move(draft), model_->description().page_size);
  }

  // Throws std::system_error.
  static void StartThread(const std::shared_ptr<Worker>& worker) {
    worker->thread_.Start(worker);
  }
  // Waits for all started plans, unless called on the worker thread.
  void EndThread() { thread_.End(); }

  const ModelExecutorOptions& options() const { return options_; }
  const ModelDescription& description() const { return description_; }

  void Start(StepPlan plan, Done done) {
    // Every plan must run, because it reports forks and ends of sequences. So
    // this retries until there is memory.
    const auto step = UntilThereIsMemory([&] {
      return std::make_shared<std::pair<StepPlan, Done>>(std::move(plan),
                                                         std::move(done));
    });
    UntilThereIsMemory([&] {
      thread_.Post([this, step] {
        const Done report = std::move(step->second);
        absl::StatusOr<StepResult> result = RunSafely(&step->first);
        // This releases the plan's selections, which groups share
        // copy-on-write, before `report` lets them advance.
        { const StepPlan dropped = std::move(step->first); }
        report(std::move(result));
      });
    });
  }

 private:
  absl::StatusOr<StepResult> RunSafely(StepPlan* plan) {
    is_delivered_ = false;
    StepDrafter::Step drafts;
    absl::StatusOr<StepResult> result = RunCatching(plan, &drafts);
    if (!result.ok()) groups_.DiscardFailedStep();
    if (drafter_.has_value()) {
      drafter_->End(&drafts, &result);
      if (result.ok()) result->select_time -= result->draft_time;
    }
    if (!is_delivered_) {
      Append(plan->forks, &undelivered_forks_);
      Append(plan->finished, &undelivered_finished_);
    }
    return result;
  }

  template <typename T>
  static void Append(const std::vector<T>& from, std::vector<T>* to) {
    UntilThereIsMemory(
        [&] { to->insert(to->end(), from.begin(), from.end()); });
  }

  // Prepends forks or ends that no earlier plan has delivered.
  template <typename T>
  static void PrependUndelivered(std::vector<T>* undelivered,
                                 std::vector<T>* plan) {
    if (undelivered->empty()) return;
    Append(*plan, undelivered);
    *plan = std::exchange(*undelivered, {});
  }

  absl::StatusOr<StepResult> RunCatching(StepPlan* plan,
                                         StepDrafter::Step* drafts) {
    return CatchModelErrors<StepResult>(
        "model", [&] { return Run(plan, drafts); },
        [&] {
          return ResourceExhausted("not enough memory for a step of ",
                                   plan->tokens.size(), " tokens and ",
                                   plan->num_logits, " rows of logits");
        });
  }

  absl::StatusOr<StepResult> Run(StepPlan* plan, StepDrafter::Step* drafts) {
    const int vocab_size = model_->description().vocab_size;
    Stopwatch watch;
    CHECK(options_.run_ahead || plan->continuations.empty());
    if (drafter_.has_value()) {
      drafter_->Begin(plan, drafts);
      drafter_->DraftForLater(drafts);
    }
    if (options_.run_ahead) groups_.ExpandContinuations(plan);
    StepResult result;
    result.num_logits = plan->num_logits;
    const absl::Duration time_before_step = watch.Lap();
    const size_t size = static_cast<size_t>(plan->num_logits) * vocab_size;
    if (logits_.size() < size) logits_.resize(size);
    const std::span<float> logits(logits_.data(), size);
    PrependUndelivered(&undelivered_forks_, &plan->forks);
    PrependUndelivered(&undelivered_finished_, &plan->finished);
    is_delivered_ = true;
    std::vector<std::vector<float>> attention_scores;
    RETURN_IF_ERROR(Forward(*plan, logits, &attention_scores));
    result.forward_time = watch.Lap();
    result.selections = SelectAll(*plan, logits, vocab_size, *pool_);
    result.scorings = ScoreAll(*plan, logits, vocab_size, *pool_);
    for (size_t i = 0; i < attention_scores.size(); ++i) {
      result.scorings[i].attention_scores = std::move(attention_scores[i]);
    }
    if (plan->stop.stop_requested()) {
      return MakeError(absl::StatusCode::kCancelled, "the step was given up");
    }
    if (options_.run_ahead) groups_.Advance(result);
    result.select_time = time_before_step + watch.Lap();
    return result;
  }

  //   attention_scores  [plan.scorings] if one has an alignment
  absl::Status Forward(const StepPlan& plan, std::span<float> logits,
                       std::vector<std::vector<float>>* attention_scores) {
    const bool aligns = std::ranges::any_of(
        plan.scorings, [](const PlanPromptLogprobs& scoring) {
          return scoring.alignment != nullptr;
        });
    if (!aligns) return model_->Forward(plan, logits);
    attention_scores->resize(plan.scorings.size());
    return model_->ForwardAligned(plan, logits, *attention_scores);
  }

  const ModelExecutorOptions options_;
  ModelDescription description_;        // constant after construction
  const std::shared_ptr<Model> model_;  // its deleter ends the sole use
  const std::shared_ptr<ThreadPool> pool_;
  std::optional<StepDrafter> drafter_;
  // Forks and ends of plans that failed before the model saw them; added to the
  // next plan.
  std::vector<SequenceFork> undelivered_forks_;
  std::vector<SequenceId> undelivered_finished_;
  bool is_delivered_ = false;  // the model got those of the running plan
  PersistentGroups groups_;    // empty unless run_ahead
  std::vector<float> logits_;  // [num_logits, vocab_size], last step
  ExecutorThread thread_;      // runs the plans
};

absl::StatusOr<std::shared_ptr<ModelExecutor>> ModelExecutor::Create(
    std::shared_ptr<Model> model, std::shared_ptr<ThreadPool> pool,
    const ModelExecutorOptions& options) {
  if (model == nullptr) return InvalidArgument("model must not be null");
  if (pool == nullptr) return InvalidArgument("pool must not be null");
  ModelDescription description = model->description();
  BoundBeamsByTokens(&description.limits);
  RETURN_IF_ERROR(CheckDescription(description));
  RETURN_IF_ERROR(CheckBounds(options));
  std::shared_ptr<DraftModel> draft;
  if (options.draft_model != nullptr) {
    RETURN_IF_ERROR(
        CheckDraftModelFits(description, options.draft_model->description()));
    ASSIGN_OR_RETURN(draft, DraftModel::Create(options.draft_model, pool));
  }
  if (!model->sole_use().Take()) {
    return FailedPrecondition("the model runs on another executor");
  }
  try {
    // The deleter ends the sole use exactly once, also if this fails.
    std::shared_ptr<Model> taken(
        model.get(), [model](Model* used) { used->sole_use().GiveBack(); });
    const auto worker = std::make_shared<Worker>(
        std::move(taken), Limited(std::move(description), options),
        std::move(draft), std::move(pool), options);
    std::unique_ptr<ModelExecutor> executor(new ModelExecutor(worker));
    Worker::StartThread(worker);
    return std::shared_ptr<ModelExecutor>(std::move(executor));
  } catch (const std::exception& error) {  // std::system_error or bad_alloc
    return ResourceExhausted("cannot start the thread of a model: ",
                             error.what());
  }
}

ModelExecutor::ModelExecutor(std::shared_ptr<Worker> worker)
    : worker_(std::move(worker)) {}

ModelExecutor::~ModelExecutor() { worker_->EndThread(); }

const ModelDescription& ModelExecutor::description() const {
  return worker_->description();
}

int ModelExecutor::max_plans_in_flight() const {
  return worker_->options().run_ahead ? 2 : 1;
}

void ModelExecutor::Execute(StepPlan plan, Done done) {
  worker_->Start(std::move(plan), std::move(done));
}

}  // namespace espalier
