#include "executor/cuda/cuda_executor.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/cuda_device_scope.h"
#include "base/make_largest.h"
#include "base/memory.h"
#include "base/status.h"
#include "executor/cuda/batch/cuda_step_limits.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/cuda_graph_runner.h"
#include "executor/cuda/cuda_launch_thread.h"
#include "executor/cuda/cuda_reports.h"
#include "executor/cuda/cuda_step_times.h"
#include "executor/cuda/step/cuda_step_builder.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "executor/cuda/transfer/cuda_delta_buffer.h"
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
      std::shared_ptr<CudaModel> model, const CudaExecutorOptions& options);
  const ModelDescription& description() const { return description_; }
  int ordinal() const { return model_->device().ordinal; }

  void Start(StepPlan plan, Done done) {
    thread_->Post([this, plan = std::make_shared<StepPlan>(std::move(plan)),
                   done = std::move(done)] { return Run(plan, done); });
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
    std::shared_ptr<const StepPlan> plan;
    CudaStep step;  // points into `plan`
    int slot = 0;   // index in slots_, and number of its report
    bool was_waiting = false;
  };

  Impl(std::shared_ptr<CudaModel> model, const CudaExecutorOptions& options)
      : model_(std::move(model)),
        limits_(StepLimitsOf(model_->description(), model_->bounds())),
        max_graphs_(options.max_graphs),
        host_cache_bytes_(options.host_cache_bytes),
        requires_host_cache_(options.requires_host_cache),
        description_(model_->description()) {
    description_.limits = LimitsOfRequests(limits_);
    description_.selects_on_host = false;
    description_.verifies_drafts = description_.has_shareable_pages;
    description_.verifies_beam_drafts = description_.has_shareable_pages;
    description_.verifies_pending_drafts = description_.has_shareable_pages;
    description_.follows_pending_drafts = description_.has_shareable_pages;
  }

  absl::Status Init();
  absl::Status InitHostSlots();

  // On the thread.
  CudaLaunchThread::Poll Run(const std::shared_ptr<StepPlan>& plan,
                             const Done& done);
  absl::StatusOr<InFlight> LaunchSafely(const StepPlan& plan);
  absl::StatusOr<InFlight> Launch(const StepPlan& plan);
  absl::Status ReserveFor(const StepPlan& plan);
  absl::Status WaitForDrafts(const CudaStep& step);
  static void SayVerified(const CudaStep& step, void* event);
  absl::Status SwapPages(const StepPlan& plan);
  CudaMemoryParts MemoryParts() const;
  bool IsRunning(int slot) const;
  void CountLaunch();
  absl::StatusOr<StepResult> Finish(const InFlight& in_flight);

  // Constant after construction.
  const std::shared_ptr<CudaModel> model_;
  const CudaStepLimits limits_;
  const int max_graphs_;
  const int64_t host_cache_bytes_;
  const bool requires_host_cache_;
  ModelDescription description_;
  CudaStream stream_;
  std::optional<CudaStepMemory> memory_;
  CudaReports reports_;
  std::array<StepSlot, kNumReports> slots_;

  // Used on the executor's thread only.
  std::optional<CudaCacheEngine> cache_;
  std::unique_ptr<CudaGraphRunner> runner_;
  std::unique_ptr<CudaStepBuilder> builder_;
  std::optional<CudaDelta> delta_;
  int64_t num_launched_ = 0;
  size_t num_pinned_bytes_ = 0;  // the runner's share of figures_.memory

  // Written on the executor's thread, read on any thread.
  mutable std::mutex mutex_;
  CudaExecutorFigures figures_ ABSL_GUARDED_BY(mutex_);
  CudaStepTimes times_ ABSL_GUARDED_BY(mutex_);

  std::optional<CudaLaunchThread> thread_;  // last: it uses all of the above
};

absl::StatusOr<std::unique_ptr<CudaExecutor::Impl>> CudaExecutor::Impl::Create(
    std::shared_ptr<CudaModel> model, const CudaExecutorOptions& options) {
  std::unique_ptr<Impl> impl(new Impl(std::move(model), options));
  RETURN_IF_ERROR(impl->Init());
  return impl;
}

absl::Status CudaExecutor::Impl::Init() {
  RETURN_IF_ERROR(CheckAttention(limits_));
  ASSIGN_OR_RETURN(stream_, CudaStream::Create());
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
  ASSIGN_OR_RETURN(
      runner_, CudaGraphRunner::Create(model_.get(), &*cache_, &*memory_,
                                       reports_.ring(), reports_.logprob_ring(),
                                       max_graphs_, stream_.get()));
  builder_ = std::make_unique<CudaStepBuilder>(
      description_, model_->attention_shape(), &*memory_, model_->device());
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
    const std::shared_ptr<StepPlan>& plan, const Done& done) {
  if (plan->empty()) {
    builder_->DropEnded(*plan);
    const absl::Status status = plan->page_copies.empty()
                                    ? SwapPages(*plan)
                                    : CopiesAlone(plan->page_copies.size());
    return WaitForPoll([&] {
      return [done, status] {
        if (status.ok()) {
          done(StepResult());
        } else {
          done(status);
        }
        return true;
      };
    });
  }
  absl::StatusOr<InFlight> in_flight = LaunchSafely(*plan);
  if (!in_flight.ok()) {
    // Enqueued work may still read the slot.
    cudaStreamSynchronize(stream_.get());
    builder_->Reset(num_launched_);
    return WaitForPoll([&] {
      return [done, status = in_flight.status()] {
        done(status);
        return true;
      };
    });
  }
  in_flight->plan = plan;
  const auto launched = UntilThereIsMemory(
      [&] { return std::make_shared<InFlight>(*std::move(in_flight)); });
  return WaitForPoll([&] {
    return [this, done, launched] {
      if (IsRunning(launched->slot)) return false;
      absl::StatusOr<StepResult> result = Finish(*launched);
      // This releases the plan's selections, which groups share copy-on-write,
      // before `done` lets them advance.
      launched->plan = nullptr;
      done(std::move(result));
      return true;
    };
  });
}

absl::StatusOr<CudaExecutor::Impl::InFlight> CudaExecutor::Impl::LaunchSafely(
    const StepPlan& plan) {
  try {
    return Launch(plan);
  } catch (const std::bad_alloc&) {
    return UntilThereIsMemory([&] {
      return ResourceExhausted("not enough memory for a step of ",
                               plan.tokens.size(), " tokens and ",
                               plan.continuations.size(), " groups that go on");
    });
  }
}

absl::StatusOr<CudaExecutor::Impl::InFlight> CudaExecutor::Impl::Launch(
    const StepPlan& plan) {
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(ordinal()));
  InFlight in_flight;
  in_flight.slot = static_cast<int>(num_launched_ % kNumReports);
  StepSlot& slot = slots_[in_flight.slot];
  delta_->Clear();
  ASSIGN_OR_RETURN(in_flight.step,
                   builder_->Build(plan, ReserveFor(plan), &*delta_));
  in_flight.was_waiting =
      num_launched_ > 0 && IsRunning((num_launched_ - 1) % kNumReports);
  RETURN_IF_ERROR(WaitForDrafts(in_flight.step));
  RETURN_IF_ERROR(SwapPages(plan));
  for (const CudaGroupMove& move : in_flight.step.moves) {
    RETURN_IF_ERROR(CudaMoveGroup(memory_->arrays().state, move.from, move.to,
                                  move.num_slots, stream_.get()));
  }
  RETURN_IF_ERROR(slot.delta.Send(
      *delta_, memory_->words(), memory_->arrays().state.clock, stream_.get()));
  RETURN_IF_ERROR(runner_->Enqueue(in_flight.step));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.ended.get(), stream_.get()));
  SayVerified(in_flight.step, slot.ended.get());
  ++num_launched_;
  CountLaunch();
  return in_flight;
}

// Before all else: the step's clock begins with what is sent.
absl::Status CudaExecutor::Impl::WaitForDrafts(const CudaStep& step) {
  void* last = nullptr;  // drafts of one run have one event
  for (const CudaStep::PlacedDraft& placed : step.placed_drafts) {
    void* const event = placed.draft.event();
    if (event == nullptr || event == last) continue;
    RETURN_IF_CUDA_ERROR(
        cudaStreamWaitEvent(stream_.get(), static_cast<cudaEvent_t>(event), 0));
    last = event;
  }
  return absl::OkStatus();
}

// Lets the next drafts of the verified sequences begin. After a failed step the
// receiver of its result calls DraftVerification::Fail instead.
void CudaExecutor::Impl::SayVerified(const CudaStep& step, void* event) {
  DraftVerification* last = nullptr;  // drafts of one run have one
  for (const CudaStep::PlacedDraft& placed : step.placed_drafts) {
    DraftVerification* const verification = placed.draft.verification();
    if (verification == nullptr || verification == last) continue;
    verification->Set(event);
    last = verification;
  }
}

absl::Status CudaExecutor::Impl::SwapPages(const StepPlan& plan) {
  if (plan.page_saves.empty() && plan.page_loads.empty()) {
    return absl::OkStatus();
  }
  if (cache_->num_host_slots() == 0) {
    return InvalidArgument("pages are swapped, there are no host slots");
  }
  try {
    return cache_->SwapPages(plan.page_saves, plan.page_loads, stream_.get());
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory to swap ",
                             plan.page_saves.size() + plan.page_loads.size(),
                             " pages");
  }
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
  parts.push_back({"beams and edits", memory_->num_bytes() - tables});
  const CudaMemoryParts of_cache = cache_->memory();
  parts.insert(parts.end(), of_cache.begin(), of_cache.end());
  parts.push_back({"answers", reports_.num_bytes(), true});
  int64_t changes = 0;
  for (const StepSlot& slot : slots_) changes += slot.delta.num_bytes();
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
  if (runner_->num_pinned_bytes() == num_pinned_bytes_) return;
  num_pinned_bytes_ = runner_->num_pinned_bytes();
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
    for (const CudaStep::Scored& scored : in_flight.step.scorings) {
      result.scorings.push_back(report.Read(scored));
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
    std::shared_ptr<CudaModel> model, const CudaExecutorOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  const int max_tokens = model->bounds().max_tokens;
  try {
    ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                     CudaDeviceScope::Enter(model->device().ordinal));
    ASSIGN_OR_RETURN(auto impl, Impl::Create(std::move(model), options));
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
