#include "exec_request/model_executor.h"

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "exec_request/resident_groups.h"

namespace espalier {
namespace {

// One line of logits to select from.
struct SelectionLine {
  int selection = 0;  // index in the plan
  int row = 0;        // rank within its group
};

std::vector<SelectionLine> Lines(const StepPlan& plan) {
  std::vector<SelectionLine> lines;
  for (size_t s = 0; s < plan.selections.size(); ++s) {
    for (int row = 0; row < plan.selections[s].num_rows; ++row) {
      lines.push_back({static_cast<int>(s), row});
    }
  }
  return lines;
}

std::vector<TokenScore> SelectLine(const PlanSelection& selection, int row,
                                   std::span<const float> logits) {
  RowOptions options;
  options.domain = selection.domain;
  options.num_candidates = selection.num_candidates;
  std::vector<TokenEdit> edits;
  if (selection.processors != nullptr) {
    std::span<const TokenId> history;
    if (!selection.histories.empty()) history = selection.histories[row];
    edits =
        CollectEdits(*selection.processors, history, selection.num_generated,
                     static_cast<int>(logits.size()));
    options.repetition_penalty = selection.processors->repetition_penalty;
    options.edits = edits;
  }
  return SelectRow(logits, options);
}

// ParallelFor for a body that may throw std::bad_alloc, which is thrown here.
template <typename Body>
void AllocatingLoop(ThreadPool& pool, int count, const Body& body) {
  std::atomic<bool> out_of_memory = false;
  pool.ParallelFor(count, [&](int i) {
    try {
      body(i);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  if (out_of_memory) throw std::bad_alloc();
}

}  // namespace

std::vector<SelectionResult> SelectAll(const StepPlan& plan,
                                       std::span<const float> logits,
                                       int vocab_size, ThreadPool& pool) {
  const std::vector<SelectionLine> lines = Lines(plan);
  std::vector<std::vector<std::vector<TokenScore>>> rows;
  for (const PlanSelection& selection : plan.selections) {
    rows.emplace_back(selection.num_rows);
  }
  AllocatingLoop(pool, static_cast<int>(lines.size()), [&](int i) {
    const auto [s, row] = lines[i];
    const PlanSelection& selection = plan.selections[s];
    const size_t line = selection.first_logits + row;
    rows[s][row] = SelectLine(selection, row,
                              logits.subspan(line * vocab_size, vocab_size));
  });
  std::vector<SelectionResult> results(plan.selections.size());
  AllocatingLoop(pool, static_cast<int>(results.size()), [&](int s) {
    const PlanSelection& selection = plan.selections[s];
    results[s] = {selection.request,
                  MergeCandidates(rows[s], selection.cum_log_probs,
                                  selection.num_candidates)};
  });
  return results;
}

// The model and what a step needs, touched on the worker thread only.
class ModelExecutor::Worker {
 public:
  Worker(Model* model, ThreadPool* pool, const ModelExecutorOptions& options)
      : options_(options),
        model_(model),
        pool_(pool),
        groups_(model->description().page_size) {}
  ~Worker() { thread_.join(); }

  const ModelExecutorOptions& options() const { return options_; }
  const ModelDescription& description() const { return model_->description(); }

  void Start(StepPlan plan, Done done) {
    boost::asio::post(thread_, [this, plan = std::move(plan),
                                done = std::move(done)]() mutable {
      done(RunSafely(&plan));
    });
  }

 private:
  absl::StatusOr<StepResult> RunSafely(StepPlan* plan) {
    absl::StatusOr<StepResult> result = RunCatching(plan);
    if (!result.ok()) groups_.Lose();
    return result;
  }

  absl::StatusOr<StepResult> RunCatching(StepPlan* plan) {
    try {
      return Run(plan);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("not enough memory for a step of ",
                               plan->tokens.size(), " tokens and ",
                               plan->num_logits, " lines of logits");
    } catch (const std::exception& error) {
      return Internal("the model threw: ", error.what());
    }
  }

  absl::StatusOr<StepResult> Run(StepPlan* plan) {
    const int vocab_size = model_->description().vocab_size;
    Stopwatch watch;
    CHECK(options_.run_ahead || plan->continuations.empty());
    if (options_.run_ahead) groups_.WriteOut(plan);
    StepResult result;
    const size_t size = static_cast<size_t>(plan->num_logits) * vocab_size;
    if (logits_.size() < size) logits_.resize(size);
    const std::span<float> logits(logits_.data(), size);
    RETURN_IF_ERROR(model_->Forward(*plan, logits));
    result.forward_time = watch.Lap();
    result.selections = SelectAll(*plan, logits, vocab_size, *pool_);
    if (options_.run_ahead) groups_.Advance(result);
    result.select_time = watch.Lap();
    return result;
  }

  const ModelExecutorOptions options_;
  Model* const model_;
  ThreadPool* const pool_;
  ResidentGroups groups_;      // without any unless it runs ahead
  std::vector<float> logits_;  // [num_logits, vocab_size] of the last step
  boost::asio::thread_pool thread_{1};
};

ModelExecutor::ModelExecutor(Model* model, ThreadPool* pool,
                             const ModelExecutorOptions& options)
    : worker_(std::make_unique<Worker>(model, pool, options)) {}

ModelExecutor::~ModelExecutor() = default;

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
