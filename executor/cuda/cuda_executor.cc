#include "executor/cuda/cuda_executor.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_pinned_memory.h"
#include "base/make_largest.h"
#include "base/memory.h"
#include "base/status.h"
#include "executor/cuda/batch/cuda_constraints.h"
#include "executor/cuda/batch/cuda_step_limits.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/cuda_graph_runner.h"
#include "executor/cuda/cuda_launch_thread.h"
#include "executor/cuda/cuda_reports.h"
#include "executor/cuda/cuda_step_times.h"
#include "executor/cuda/step/cuda_step_builder.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "executor/cuda/transfer/cuda_delta_buffer.h"
#include "executor/drafts/step_drafter.h"
#include "kernels/kv_cache/cuda_cache_engine.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// Number of steps with pinned memory in use: two on the device, and one whose
// result is being read.
constexpr int kNumReports = 3;

absl::Status CheckOptions(const CudaExecutorOptions& options) {
  if (options.max_graphs < 0) {
    return InvalidArgument("max_graphs must not be negative, got ",
                           options.max_graphs);
  }
  if (options.host_cache_bytes >= 0) return absl::OkStatus();
  return InvalidArgument("host_cache_bytes must not be negative, got ",
                         options.host_cache_bytes);
}

// Returns the error of a plan with copies but without rows. Without the copies,
// the next step would read the wrong pages.
absl::Status CopiesAlone(size_t num_copies) {
  return InvalidArgument("a plan that runs nothing copies ", num_copies,
                         " pages");
}

// Checks that attention supports every possible step. Each token is one query
// of its own pages. Tokens of beams and tokens that verify drafts are also
// queries of their group's shared prefix; each of these has a row of logits.
absl::Status CheckAttention(const CudaStepLimits& limits) {
  const int64_t num_items = int64_t{limits.max_tokens} + limits.max_rows;
  if (limits.max_items < num_items) {
    return InvalidArgument("max_attention_items must be at least ", num_items,
                           " (tokens and rows of a step), got ",
                           limits.max_items);
  }
  const int64_t num_partials = int64_t{2} * limits.max_tokens;
  if (limits.max_partials < num_partials) {
    return InvalidArgument("max_attention_partials must be at least ",
                           num_partials, " (twice the tokens of a step), got ",
                           limits.max_partials);
  }
  return absl::OkStatus();
}

// Pinned memory and the event of a step, used again kNumReports steps later.
struct StepSlot {
  CudaDeltaBuffer delta;
  // Scores of attention: as many as the largest step so far.
  PinnedBuffer<float> scores;
  CudaEvent ended;
};

// Creates an event without time stamps, which would cost the device 1.2 us
// between two graphs (H200).
absl::StatusOr<CudaEvent> MakeEndEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return CudaEvent(event);
}

// Retries until there is memory for the poll, because a launched step must be
// polled.
template <typename MakePoll>
CudaLaunchThread::Poll WaitForPoll(const MakePoll& make_poll) {
  return UntilThereIsMemory(
      [&] { return CudaLaunchThread::Poll(make_poll()); });
}

}  // namespace

class CudaExecutor::Impl {
 public:
  static absl::StatusOr<std::unique_ptr<Impl>> Create(
      std::shared_ptr<CudaModel> model, CudaExecutorOptions options);
  const ModelDescription& description() const { return description_; }
  int ordinal() const { return model_->device().ordinal; }

  void Start(StepPlan plan, Done done) {
    const auto started = std::make_shared<InFlight>();
    started->plan = std::move(plan);
    started->done = std::move(done);
    thread_->Post([this, started] { return Run(started); });
  }

  CudaExecutorFigures figures() const {
    CudaExecutorFigures figures;
    CudaStepTimes times;
    {
      const std::lock_guard lock(mutex_);
      figures = figures_;
      times = times_;
    }
    figures.busy = times.busy();
    figures.idle = times.idle();
    figures.num_gaps = times.num_gaps();
    figures.median_gap = times.MedianGap();
    return figures;
  }

 private:
  struct InFlight {
    StepPlan plan;
    Done done;
    CudaStep step;  // points into `plan`
    StepDrafter::Step drafts;
    int slot = -1;  // index in slots_, and number of its report; -1: not there
    bool was_waiting = false;
    std::optional<absl::StatusOr<StepResult>> result;  // null: not read yet
  };

  Impl(std::shared_ptr<CudaModel> model, CudaExecutorOptions options)
      : model_(std::move(model)),
        limits_(StepLimitsOf(model_->description(), model_->bounds())),
        max_graphs_(options.max_graphs),
        host_cache_bytes_(options.host_cache_bytes),
        requires_host_cache_(options.requires_host_cache),
        description_(model_->description()) {
    description_.limits = LimitsOfRequests(limits_);
    if (options.draft_model != nullptr) {
      description_.limits.max_drafted_length =
          options.draft_model->max_tokens();
      const bool may_pend = options.draft_model->stream() != nullptr;
      drafter_.emplace(std::move(options.draft_model), description_.page_size,
                       may_pend);
    }
    description_.selects_on_host = false;
    description_.has_token_masks = true;
  }

  absl::Status Init();
  absl::Status InitHostSlots();

  // On the thread.
  CudaLaunchThread::Poll Run(const std::shared_ptr<InFlight>& started);
  absl::Status LaunchSafely(InFlight* started);
  // Launches the plan, or only changes state if it has no rows.
  absl::Status Launch(InFlight* started);
  absl::Status ChangeState(const StepPlan& plan);
  absl::Status ReserveFor(const StepPlan& plan);
  absl::Status SwapPages(const StepPlan& plan);
  // Places the scores of attention that the step reports.
  absl::Status PlaceScores(StepSlot* slot, CudaStep* step);
  CudaMemoryParts MemoryParts() const;
  bool IsRunning(int slot) const;
  void CountLaunch();
  // Waits for all launched plans, and reads and delivers their results.
  void ReadAll();
  // Does so for the first unread plan. REQUIRES: it is not running.
  void ReadNext();
  // Makes the drafts of a launched plan that a later one verifies.
  void DraftForLater(InFlight* started);
  absl::StatusOr<StepResult> Finish(const InFlight& in_flight);

  // Constant after construction.
  const std::shared_ptr<CudaModel> model_;
  const CudaStepLimits limits_;
  const int max_graphs_;
  const int64_t host_cache_bytes_;
  const bool requires_host_cache_;
  ModelDescription description_;
  std::optional<StepDrafter> drafter_;  // used on the executor's thread only
  CudaStream own_stream_;               // null if the draft model has one
  cudaStream_t stream_ = nullptr;
  std::optional<CudaStepMemory> memory_;
  CudaReports reports_;
  std::array<StepSlot, kNumReports> slots_;

  // Used on the executor's thread only.
  std::optional<CudaCacheEngine> cache_;
  std::unique_ptr<CudaConstraints> constraints_;
  std::unique_ptr<CudaGraphRunner> runner_;
  std::unique_ptr<CudaStepBuilder> builder_;
  std::optional<CudaDelta> delta_;
  std::deque<std::shared_ptr<InFlight>> unread_;  // begun, results not read
  int64_t num_launched_ = 0;
  // The runner's share of figures_.memory, and that of constraints.
  size_t num_pinned_bytes_ = 0;
  int64_t num_constraint_bytes_ = 0;

  // Written on the executor's thread, read on any thread.
  mutable std::mutex mutex_;
  CudaExecutorFigures figures_ ABSL_GUARDED_BY(mutex_);
  CudaStepTimes times_ ABSL_GUARDED_BY(mutex_);

  std::optional<CudaLaunchThread> thread_;  // last: it uses all of the above
};

absl::StatusOr<std::unique_ptr<CudaExecutor::Impl>> CudaExecutor::Impl::Create(
    std::shared_ptr<CudaModel> model, CudaExecutorOptions options) {
  std::unique_ptr<Impl> impl(new Impl(std::move(model), std::move(options)));
  RETURN_IF_ERROR(impl->Init());
  return impl;
}

absl::Status CudaExecutor::Impl::Init() {
  RETURN_IF_ERROR(CheckAttention(limits_));
  if (drafter_.has_value()) {
    stream_ = static_cast<cudaStream_t>(drafter_->model().stream());
  }
  if (stream_ == nullptr) {
    ASSIGN_OR_RETURN(own_stream_, CudaStream::Create());
    stream_ = own_stream_.get();
  }
  ASSIGN_OR_RETURN(memory_, CudaStepMemory::Create(limits_, model_->null_page(),
                                                   description_.page_size));
  ASSIGN_OR_RETURN(reports_, CudaReports::Create(limits_, kNumReports));
  for (StepSlot& slot : slots_) {
    ASSIGN_OR_RETURN(slot.ended, MakeEndEvent());
    ASSIGN_OR_RETURN(slot.delta, CudaDeltaBuffer::Create());
  }
  cache_.emplace(model_->cache(),
                 CudaPageTokens{memory_->arrays().state.page_tokens,
                                description_.page_size},
                 model_->device());
  ASSIGN_OR_RETURN(constraints_,
                   CudaConstraints::Create(limits_.max_rows,
                                           description_.vocab_size, stream_));
  ASSIGN_OR_RETURN(
      runner_,
      CudaGraphRunner::Create(model_.get(), &*cache_, &*memory_,
                              reports_.ring(), reports_.logprob_ring(),
                              max_graphs_, stream_, constraints_->on_device()));
  builder_ = std::make_unique<CudaStepBuilder>(
      description_, model_->attention_shape(), &*memory_, model_->device(),
      constraints_.get());
  delta_.emplace(memory_->words());
  RETURN_IF_ERROR(InitHostSlots());
  {
    const std::lock_guard lock(mutex_);
    figures_.memory = MemoryParts();
  }
  thread_.emplace(kNumReports, [ordinal = ordinal()] {
    cudaSetDevice(ordinal);  // if that fails, so does every launch (Launch)
  });
  return absl::OkStatus();
}

// Adds host slots only for models that keep sequences in pages alone.
absl::Status CudaExecutor::Impl::InitHostSlots() {
  if (host_cache_bytes_ == 0 || !description_.has_shareable_pages) {
    return absl::OkStatus();
  }
  const auto add = [this](int64_t bytes) -> absl::StatusOr<CudaCacheEngine*> {
    RETURN_IF_ERROR(cache_->AddHostSlots(bytes));
    return &*cache_;
  };
  const auto added = requires_host_cache_ ? add(host_cache_bytes_)
                                          : MakeLargest(host_cache_bytes_, add);
  RETURN_IF_ERROR(added.status());
  if (*added == nullptr) return absl::OkStatus();
  description_.num_host_slots = cache_->num_host_slots();
  description_.page_bytes = cache_->page_bytes();
  description_.host_bandwidth = cache_->host_bandwidth();
  return absl::OkStatus();
}

CudaLaunchThread::Poll CudaExecutor::Impl::Run(
    const std::shared_ptr<InFlight>& started) {
  if (drafter_.has_value() && drafter_->MustWait(started->plan)) ReadAll();
  const absl::Status status = LaunchSafely(started.get());
  if (!status.ok()) {
    // Enqueued work may still read the slot.
    cudaStreamSynchronize(stream_);
    builder_->Reset(num_launched_);
    started->slot = -1;
    UntilThereIsMemory([&] { started->result = status; });
  }
  UntilThereIsMemory([&] { unread_.push_back(started); });
  if (!status.ok()) ReadAll();  // no later plan may follow this one
  return WaitForPoll([&] {
    return [this, started] {
      if (unread_.empty() || unread_.front() != started) return true;
      DraftForLater(started.get());  // earlier results are read
      if (started->slot >= 0 && IsRunning(started->slot)) return false;
      ReadNext();
      return true;
    };
  });
}

void CudaExecutor::Impl::ReadAll() {
  cudaStreamSynchronize(stream_);  // an error is the result of each
  while (!unread_.empty()) ReadNext();
}

void CudaExecutor::Impl::ReadNext() {
  const std::shared_ptr<InFlight> next = std::move(unread_.front());
  unread_.pop_front();
  DraftForLater(next.get());
  if (next->slot >= 0) next->result = Finish(*next);
  if (drafter_.has_value()) drafter_->End(&next->drafts, &*next->result);
  // This releases the plan's selections, which groups share copy-on-write,
  // before `done` lets them advance.
  { const CudaStep dropped = std::move(next->step); }
  { const StepPlan dropped = std::move(next->plan); }
  std::exchange(next->done, nullptr)(*std::move(next->result));
}

void CudaExecutor::Impl::DraftForLater(InFlight* started) {
  const bool has_failed = started->result.has_value() && !started->result->ok();
  if (drafter_.has_value() && !has_failed) {
    drafter_->DraftForLater(&started->drafts);
  }
}

absl::Status CudaExecutor::Impl::LaunchSafely(InFlight* started) {
  const StepPlan& plan = started->plan;
  try {
    if (drafter_.has_value()) {
      drafter_->Begin(&started->plan, &started->drafts);
    }
    return Launch(started);
  } catch (const std::bad_alloc&) {
    return UntilThereIsMemory([&] {
      return ResourceExhausted("not enough memory for a step of ",
                               plan.tokens.size(), " tokens and ",
                               plan.continuations.size(), " groups that go on");
    });
  }
}

absl::Status CudaExecutor::Impl::Launch(InFlight* started) {
  const StepPlan& plan = started->plan;
  if (plan.empty()) {
    started->result = StepResult();
    const absl::Status status = ChangeState(plan);
    if (!status.ok()) started->result = status;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(ordinal()));
  const int slot_idx = static_cast<int>(num_launched_ % kNumReports);
  StepSlot& slot = slots_[slot_idx];
  delta_->Clear();
  constraints_->Place(plan);
  ASSIGN_OR_RETURN(started->step,
                   builder_->Build(plan, ReserveFor(plan), &*delta_));
  started->was_waiting =
      num_launched_ > 0 && IsRunning((num_launched_ - 1) % kNumReports);
  RETURN_IF_ERROR(PlaceScores(&slot, &started->step));
  RETURN_IF_ERROR(SwapPages(plan));
  for (const CudaGroupMove& move : started->step.moves) {
    RETURN_IF_ERROR(CudaMoveGroup(memory_->arrays().state, move.from, move.to,
                                  move.num_slots, stream_));
  }
  RETURN_IF_ERROR(slot.delta.Send(*delta_, memory_->words(),
                                  memory_->arrays().state.clock, stream_));
  RETURN_IF_ERROR(runner_->Enqueue(started->step));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.ended.get(), stream_));
  started->slot = slot_idx;
  ++num_launched_;
  CountLaunch();
  return absl::OkStatus();
}

absl::Status CudaExecutor::Impl::ChangeState(const StepPlan& plan) {
  builder_->DropEnded(plan);
  return plan.page_copies.empty() ? SwapPages(plan)
                                  : CopiesAlone(plan.page_copies.size());
}

absl::Status CudaExecutor::Impl::SwapPages(const StepPlan& plan) {
  if (plan.page_saves.empty() && plan.page_loads.empty()) {
    return absl::OkStatus();
  }
  if (cache_->num_host_slots() == 0) {
    return InvalidArgument("pages are swapped, there are no host slots");
  }
  try {
    return cache_->SwapPages(plan.page_saves, plan.page_loads, stream_);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory to swap ",
                             plan.page_saves.size() + plan.page_loads.size(),
                             " pages");
  }
}

absl::Status CudaExecutor::Impl::PlaceScores(StepSlot* slot, CudaStep* step) {
  if (static_cast<int64_t>(slot->scores.size()) < step->num_scores) {
    slot->scores = {};
    ASSIGN_OR_RETURN(slot->scores,
                     PinnedBuffer<float>::Create(step->num_scores));
    const std::lock_guard lock(mutex_);
    figures_.memory = MemoryParts();
  }
  float* next = slot->scores.data();
  for (CudaAlignedTokens& aligned : step->aligned) {
    aligned.scores = next;
    next += int64_t{aligned.num_tokens} * std::ssize(aligned.query->heads) *
            aligned.query->num_positions;
  }
  return absl::OkStatus();
}

// Allocates memory that only some steps need, before the first of these.
absl::Status CudaExecutor::Impl::ReserveFor(const StepPlan& plan) {
  const bool has_noise =
      std::ranges::any_of(plan.selections, [](const PlanSelection& selection) {
        const RowSelection* const rows = selection.as_rows();
        return rows != nullptr && rows->gumbel_top_k;
      });
  if (!has_noise || runner_->has_gumbel_top_k()) return absl::OkStatus();
  RETURN_IF_ERROR(runner_->ReserveGumbelTopK());
  const std::lock_guard lock(mutex_);
  figures_.memory = MemoryParts();
  return absl::OkStatus();
}

CudaMemoryParts CudaExecutor::Impl::MemoryParts() const {
  CudaMemoryParts parts = model_->memory();
  const CudaMemoryParts of_runner = runner_->memory();
  parts.insert(parts.end(), of_runner.begin(), of_runner.end());
  const int64_t tables = memory_->num_table_bytes();
  parts.push_back({"page tables", tables});
  parts.push_back({"constraints", constraints_->num_bytes()});
  const int64_t masks = memory_->num_mask_bytes();
  parts.push_back({"token masks", masks});
  parts.push_back({"beams and edits", memory_->num_bytes() - tables - masks});
  const CudaMemoryParts of_cache = cache_->memory();
  parts.insert(parts.end(), of_cache.begin(), of_cache.end());
  int64_t scores = 0;
  int64_t changes = 0;
  for (const StepSlot& slot : slots_) {
    scores += static_cast<int64_t>(slot.scores.size_bytes());
    changes += slot.delta.num_bytes();
  }
  parts.push_back({"answers", reports_.num_bytes() + scores, true});
  parts.push_back({"changes of a step", changes, true});
  return parts;
}

bool CudaExecutor::Impl::IsRunning(int slot) const {
  if (cudaEventQuery(slots_[slot].ended.get()) != cudaErrorNotReady) {
    return false;
  }
  cudaGetLastError();  // that it is not ready is no error
  return true;
}

void CudaExecutor::Impl::CountLaunch() {
  const std::lock_guard lock(mutex_);
  ++figures_.num_steps;
  if (!delta_->empty()) ++figures_.num_deltas;
  const CudaGraphRunner::Counts counts = runner_->counts();
  figures_.num_graph_launches = counts.num_graph_launches;
  figures_.num_without_graph = counts.num_without_graph;
  figures_.num_captures = counts.num_captured;
  figures_.num_graphs = counts.num_graphs;
  if (runner_->num_pinned_bytes() == num_pinned_bytes_ &&
      constraints_->num_bytes() == num_constraint_bytes_) {
    return;
  }
  num_pinned_bytes_ = runner_->num_pinned_bytes();
  num_constraint_bytes_ = constraints_->num_bytes();
  figures_.memory = MemoryParts();
}

absl::StatusOr<StepResult> CudaExecutor::Impl::Finish(
    const InFlight& in_flight) {
  RETURN_IF_ERROR(
      CudaStatus(cudaEventSynchronize(slots_[in_flight.slot].ended.get()),
                 "a step on the device"));
  const CudaReportReader report = reports_.reader(in_flight.slot);
  const CudaReportRing::Header header = report.header();
  {
    const std::lock_guard lock(mutex_);
    times_.Add(header.started_ns, header.ended_ns, in_flight.was_waiting);
  }
  try {
    StepResult result;
    for (const CudaStep::Answer& answer : in_flight.step.answers) {
      result.selections.push_back(report.Read(answer));
    }
    const float* const scores = slots_[in_flight.slot].scores.data();
    for (const CudaStep::Scored& scored : in_flight.step.scorings) {
      result.scorings.push_back(report.Read(scored));
      if (scored.num_scores == 0) continue;
      const float* const first = scores + scored.first_score;
      result.scorings.back().attention_scores.assign(first,
                                                     first + scored.num_scores);
    }
    result.forward_time =
        absl::Nanoseconds(header.ended_ns - header.started_ns);
    return result;
  } catch (const std::bad_alloc&) {
    return UntilThereIsMemory([] {
      return ResourceExhausted("not enough memory for the answers of a step");
    });
  }
}

CudaExecutor::CudaExecutor(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

CudaExecutor::~CudaExecutor() {
  const auto scope = CudaDeviceScope::EnterIfPossible(impl_->ordinal());
  impl_.reset();
}

absl::StatusOr<std::unique_ptr<CudaExecutor>> CudaExecutor::Create(
    std::shared_ptr<CudaModel> model, CudaExecutorOptions options) {
  RETURN_IF_ERROR(CheckOptions(options));
  if (options.draft_model != nullptr) {
    RETURN_IF_ERROR(CheckDraftModelFits(model->description(),
                                        options.draft_model->description()));
  }
  const int max_tokens = model->bounds().max_tokens;
  try {
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(model->device().ordinal));
    ASSIGN_OR_RETURN(auto impl,
                     Impl::Create(std::move(model), std::move(options)));
    return std::unique_ptr<CudaExecutor>(new CudaExecutor(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory to keep track of steps of ",
                             max_tokens, " tokens");
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start a thread: ", error.what());
  }
}

const ModelDescription& CudaExecutor::description() const {
  return impl_->description();
}

void CudaExecutor::Execute(StepPlan plan, Done done) {
  impl_->Start(std::move(plan), std::move(done));
}

CudaExecutorFigures CudaExecutor::figures() const { return impl_->figures(); }

}  // namespace espalier
