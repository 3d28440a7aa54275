#include "executor/cuda/draft/cuda_draft_sampler.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/cuda.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_memory.h"
#include "base/status.h"
#include "executor/cuda/step/cuda_step_builder.h"
#include "kernels/sample/cuda_sample.h"

namespace espalier {
namespace {

bool IsUnread(const DraftSequence* sequence) {
  return !sequence->verified_before.empty();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDraftSampler>> CudaDraftSampler::Create(
    std::shared_ptr<CudaModel> model, const CudaDraftSamplerOptions& options) {
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(model->device().ordinal));
  std::unique_ptr<CudaDraftSampler> created(
      new CudaDraftSampler(std::move(model)));
  RETURN_IF_ERROR(created->Init(options));
  return created;
}

CudaDraftSampler::~CudaDraftSampler() {
  const auto scope = CudaDeviceScope::EnterIfPossible(model_->device().ordinal);
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
  runner_ = nullptr;
  last_ = waited_ = nullptr;
  runs_.clear();
  drafted_ = nullptr;
  delta_buffer_ = {};
  kept_.reset();
  memory_.reset();
  cache_.reset();
  stream_ = {};
}

absl::Status CudaDraftSampler::Init(const CudaDraftSamplerOptions& options) {
  ASSIGN_OR_RETURN(stream_, CudaStream::Create());
  cache_.emplace(model_->cache(), CudaPageTokens(), model_->device());
  RETURN_IF_ERROR(cache_->ReserveCopyList());
  ASSIGN_OR_RETURN(memory_,
                   CudaDraftMemory::Create(CudaDraftLimits::Of(*model_),
                                           model_->null_page()));
  const int max_rows = limits().max_rows;
  // One draft for each row is enough, if it fits kept_logits_bytes.
  const int64_t num_kept = std::min<int64_t>(
      options.kept_logits_bytes / sizeof(float) / vocab_size(),
      int64_t{max_rows} * kMaxDraftTokens);
  ASSIGN_OR_RETURN(kept_,
                   CudaDraftLogitsPool::Create(static_cast<int>(num_kept),
                                               vocab_size(), model_->device()));
  ASSIGN_OR_RETURN(delta_buffer_, CudaDeltaBuffer::Create());
  const int num_drafted = kMaxDraftTokens * max_rows;  // per run
  ASSIGN_OR_RETURN(
      PinnedBuffer<TokenId> drafted,
      PinnedBuffer<TokenId>::Create(size_t{1 + kMaxPending} * num_drafted));
  drafted_ = std::make_shared<PinnedBuffer<TokenId>>(std::move(drafted));
  ASSIGN_OR_RETURN(waited_, MakeRun(0));
  for (int i = 1; i <= kMaxPending; ++i) {
    ASSIGN_OR_RETURN(runs_.emplace_back(), MakeRun(i * num_drafted));
  }
  ASSIGN_OR_RETURN(runner_,
                   CudaDraftRunner::Create({.model = model_.get(),
                                            .inputs = &*memory_,
                                            .kept = &*kept_,
                                            .drafted = drafted_->data()},
                                           options.max_graphs, stream_.get()));
  delta_.emplace(memory_->words());
  sent_tables_.resize(max_rows);
  const auto to = [this](const CudaDraftInputs& inputs) {
    return CudaAttentionUploader::Target{
        inputs, model_->attention_shape(), limits().max_items,
        limits().max_partials, model_->device()};
  };
  first_attention_.emplace(to(memory_->arrays().first));
  next_attention_.emplace(to(memory_->arrays().next));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CudaDraftSampler::Run>>
CudaDraftSampler::MakeRun(int first_drafted) const {
  auto run = std::make_shared<Run>();
  run->drafted = drafted_;
  run->first_drafted = first_drafted;
  ASSIGN_OR_RETURN(run->started, CudaEvent::Create());
  ASSIGN_OR_RETURN(run->ended, CudaEvent::Create());
  ASSIGN_OR_RETURN(run->verified,
                   PinnedBuffer<VerifiedDraft>::Create(limits().max_rows));
  ASSIGN_OR_RETURN(run->unread,
                   PinnedBuffer<CudaUnreadDraft>::Create(limits().max_rows));
  return run;
}

bool CudaDraftSampler::CanSample(const DraftSequence& sequence) const {
  return CanDraftOnDevice(sequence, limits(), vocab_size());
}

int CudaDraftSampler::max_row_tokens() const { return limits().max_row_tokens; }

absl::StatusOr<std::vector<SampledDraft>> CudaDraftSampler::Sample(
    const StepPlan& plan, std::span<const DraftSequence* const> sequences) {
  CHECK_LE(sequences.size(), plan.rows.size()) << "sequences that draft";
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(model_->device().ordinal));
  std::vector<SampledDraft> drafts(sequences.size());
  const auto run_all = [&]() -> absl::Status {
    RETURN_IF_ERROR(cache_->CopyPages(plan.page_copies, stream_.get()));
    const size_t most = limits().max_rows;
    for (size_t first = 0; first < sequences.size(); first += most) {
      if (plan.stop.stop_requested()) {
        return MakeError(absl::StatusCode::kCancelled, "the step was given up");
      }
      const auto part =
          sequences.subspan(first, std::min(most, sequences.size() - first));
      const auto own = std::span(drafts).subspan(first, part.size());
      RETURN_IF_ERROR(Enqueue(plan, first, part, waited_.get(), own));
      RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
      for (size_t row = 0; row < part.size(); ++row) {
        const PendingDraft sampled = DraftOf(waited_, *part[row], row);
        for (int i = 0; i < sampled.num_tokens(); ++i) {
          own[row].tokens.push_back(sampled.token(i));
        }
      }
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunAfterWait(run_all));
  return drafts;
}

PendingDraft CudaDraftSampler::DraftOf(const std::shared_ptr<Run>& run,
                                       const DraftSequence& sequence,
                                       size_t row) const {
  return PendingDraft({run, drafted_->data() + run->first_drafted + row},
                      limits().max_rows, sequence.num_tokens,
                      run->verified.data() + row);
}

template <typename Body>
absl::Status CudaDraftSampler::RunAfterWait(const Body& body) {
  const auto give_up = [this] {
    // Enqueued work may still write to memory of the host.
    cudaStreamSynchronize(stream_.get());
    Forget();
  };
  try {
    // The last run may still read the pinned input buffer.
    RETURN_IF_ERROR(Wait().status());
    const absl::Status status = body();
    if (!status.ok()) give_up();
    return status;
  } catch (const std::bad_alloc&) {
    give_up();
    throw;
  }
}

std::shared_ptr<CudaDraftSampler::Run> CudaDraftSampler::UnusedRun() const {
  const auto free = std::ranges::find_if(
      runs_, [](const auto& run) { return run.use_count() == 1; });
  return free == runs_.end() ? nullptr : *free;
}

absl::StatusOr<std::vector<SampledDraft>> CudaDraftSampler::Start(
    const StepPlan& plan, std::span<const DraftSequence* const> sequences) {
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(model_->device().ordinal));
  RETURN_IF_ERROR(Wait().status());
  std::vector<SampledDraft> drafts(sequences.size());
  const size_t num_read =
      std::ranges::find_if(sequences, IsUnread) - sequences.begin();
  const std::shared_ptr<Run> run = UnusedRun();
  if (run == nullptr || std::ssize(sequences) > limits().max_rows) {
    ASSIGN_OR_RETURN(drafts, Sample(plan, sequences.first(num_read)));
    drafts.resize(sequences.size());
    return drafts;
  }
  if (sequences.empty()) return drafts;
  const auto enqueue = [&]() -> absl::Status {
    RETURN_IF_ERROR(cache_->CopyPages(plan.page_copies, stream_.get()));
    return Enqueue(plan, 0, sequences, run.get(), drafts);
  };
  RETURN_IF_ERROR(RunAfterWait(enqueue));
  ++num_pending_runs_;
  if (sequences.size() > num_read) ++num_unread_runs_;
  last_ = run;
  for (size_t row = 0; row < sequences.size(); ++row) {
    drafts[row].pending = DraftOf(run, *sequences[row], row);
  }
  return drafts;
}

absl::StatusOr<absl::Duration> CudaDraftSampler::Wait() {
  if (last_ == nullptr) return absl::ZeroDuration();
  const std::shared_ptr<Run> run = std::exchange(last_, nullptr);
  const absl::Status status = CudaStatus(cudaEventSynchronize(run->ended.get()),
                                         "drafts on the device");
  if (!status.ok()) {
    Forget();
    return status;
  }
  float ms = 0;
  RETURN_IF_CUDA_ERROR(
      cudaEventElapsedTime(&ms, run->started.get(), run->ended.get()));
  return absl::Milliseconds(ms);
}

absl::Status CudaDraftSampler::Enqueue(
    const StepPlan& plan, size_t first,
    std::span<const DraftSequence* const> sequences, Run* run,
    std::span<SampledDraft> drafts) {
  std::fill_n(run->verified.data(), sequences.size(), VerifiedDraft());
  const CudaDraftBatch batch =
      LayOut(plan, first, sequences, run->first_drafted, drafts);
  RETURN_IF_ERROR(Send(plan, first, batch));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(run->started.get(), stream_.get()));
  RETURN_IF_ERROR(BeginDrafts(sequences, run));
  RETURN_IF_ERROR(RunSteps(batch));
  ++num_runs_;
  return CudaStatus(cudaEventRecord(run->ended.get(), stream_.get()),
                    "cudaEventRecord");
}

CudaDraftBatch CudaDraftSampler::LayOut(
    const StepPlan& plan, size_t first,
    std::span<const DraftSequence* const> sequences, int first_drafted,
    std::span<SampledDraft> drafts) {
  CudaDraftBatch batch(limits(), model_->description().page_size, vocab_size(),
                       first_drafted);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const DraftSequence& sequence = *sequences[i];
    int first_kept = -1;
    if (NeedsDraftLogits(*sequence.params)) {
      if (auto rows = kept_->Take(sequence.num_tokens); rows.has_value()) {
        first_kept = rows->first;
        drafts[i].logits = std::move(rows->logits);
      }
    }
    const PlanRow& row = plan.rows[first + i];
    batch.Add(sequence, plan.row_tokens(row), row.first_position, first_kept);
  }
  batch.Pad(PaddedRows(batch.num_rows(), limits().max_rows));
  return batch;
}

absl::Status CudaDraftSampler::Send(const StepPlan& plan, size_t first,
                                    const CudaDraftBatch& batch) {
  const CudaDraftArrays& arrays = memory_->arrays();
  delta_->Clear();
  for (int row = 0; row < batch.num_sequences; ++row) {
    sent_tables_[row].Update(Words(plan.row_pages(first + row)),
                             memory_->table(row), &*delta_);
  }
  if (batch.feeds_two) {
    SendTokens(batch.first, arrays.first, &*first_attention_);
    delta_->Put<int>(arrays.first_logits_tokens, batch.first_logits_tokens);
  }
  SendTokens(batch.next, arrays.next, &*next_attention_);
  delta_->Put<CudaDraftRow>(arrays.rows, batch.rows);
  delta_->Put(arrays.num_draws, batch.num_sequences);
  delta_->Put<CudaDraw>(arrays.draws, batch.draws);
  delta_->Put<int>(arrays.row_params, batch.row_params);
  delta_->Put<int>(arrays.kept_rows, batch.kept_rows);
  delta_->Put<SamplingParams>(arrays.params, batch.params);
  if (batch.has_edits()) {
    delta_->Put<CudaRowEdits>(arrays.row_edits, batch.row_edits);
    sent_edits_.Update(batch.edits, arrays.edits, &*delta_);
  }
  return delta_buffer_.Send(*delta_, memory_->words(), arrays.clock,
                            stream_.get());
}

void CudaDraftSampler::SendTokens(const CudaDraftTokens& tokens,
                                  const CudaDraftInputs& inputs,
                                  CudaAttentionUploader* attention) {
  delta_->Put<int>(inputs.tokens, tokens.tokens);
  delta_->Put<int>(inputs.positions, tokens.positions);
  delta_->Put<int>(inputs.token_tables, tokens.token_tables);
  attention->Send(tokens.attention_rows, {},
                  static_cast<int>(tokens.tokens.size()), &*delta_);
}

absl::Status CudaDraftSampler::BeginDrafts(
    std::span<const DraftSequence* const> sequences, Run* run) {
  int count = 0;
  for (size_t row = 0; row < sequences.size(); ++row) {
    if (!IsUnread(sequences[row])) continue;
    const PendingDraft& before = sequences[row]->verified_before;
    run->unread.data()[count++] = {
        .verified = reinterpret_cast<uintptr_t>(before.verified()),
        .last_token = reinterpret_cast<uintptr_t>(
            before.tokens() + (before.num_tokens() - 1) * before.stride()),
        .max_accepted = before.num_tokens(),
        .row = static_cast<int>(row)};
  }
  const CudaDraftArrays& arrays = memory_->arrays();
  return CudaBeginDrafts(run->unread.data(), count,
                         {.first_tokens = arrays.first.tokens,
                          .first_positions = arrays.first.positions,
                          .first_token_tables = arrays.first.token_tables,
                          .tokens = arrays.next.tokens,
                          .positions = arrays.next.positions,
                          .draws = arrays.draws},
                         stream_.get());
}

absl::Status CudaDraftSampler::RunSteps(const CudaDraftBatch& batch) {
  return runner_->Enqueue(
      {.num_rows = batch.num_rows(),
       .num_steps = batch.num_steps,
       .feeds_two = batch.feeds_two,
       .has_edits = batch.has_edits(),
       .keeps_logits = batch.keeps_logits,
       .first_has_partials =
           batch.feeds_two && first_attention_->has_partials(),
       .has_partials = next_attention_->has_partials()});
}

void CudaDraftSampler::Forget() {
  for (ShadowedArray<int>& table : sent_tables_) table.Forget();
  sent_edits_.Forget();
  first_attention_->Forget();
  next_attention_->Forget();
}

}  // namespace espalier
