#include "executor/cuda/cuda_blocking_model.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_memory.h"
#include "base/page_count.h"
#include "base/status.h"
#include "kernels/attention/cuda_attention_plan.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// Pinned memory for logits: this many bytes, but at least this many rows.
constexpr int64_t kLogitsBytes = int64_t{64} << 20;
constexpr int64_t kFewestLogitsRows = 64;
// Arrays in one block of ints begin at multiples of this.
constexpr int kAlignedInts = 4;

int64_t AlignedInts(int64_t count) {
  return (count + kAlignedInts - 1) / kAlignedInts * kAlignedInts;
}

int MaxPages(const ModelDescription& model) {
  return static_cast<int>(NumPages(model.max_context, model.page_size));
}

// Packs arrays of ints one after the other into pinned memory.
class IntArrays {
 public:
  explicit IntArrays(int* to) : to_(to) {}

  // Appends an array; returns the index of its first int.
  int64_t Add(std::span<const int> values) {
    const int64_t begin = size_;
    std::ranges::copy(values, to_ + begin);
    size_ += AlignedInts(std::ssize(values));
    return begin;
  }
  int64_t size() const { return size_; }

 private:
  int* const to_;
  int64_t size_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBlockingModel>> CudaBlockingModel::Create(
    std::shared_ptr<CudaModel> model) {
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(model->device().ordinal));
  std::unique_ptr<CudaBlockingModel> created(
      new CudaBlockingModel(std::move(model)));
  RETURN_IF_ERROR(created->Init());
  return created;
}

CudaBlockingModel::~CudaBlockingModel() {
  const auto scope = CudaDeviceScope::EnterIfPossible(model_->device().ordinal);
  if (stream_.get() != nullptr) cudaStreamSynchronize(stream_.get());
  logits_ = {};
  host_logits_ = {};
  cache_.reset();
  items_ = {};
  staged_items_ = {};
  ints_ = {};
  staged_ = {};
  stream_ = {};
}

absl::Status CudaBlockingModel::Init() {
  const CudaCallBounds& bounds = model_->bounds();
  const ModelDescription& model = description();
  const int64_t row_bytes = int64_t{model.vocab_size} * sizeof(float);
  max_logits_rows_ = static_cast<int>(
      std::min<int64_t>(bounds.max_logits,
                        std::max(kLogitsBytes / row_bytes, kFewestLogitsRows)));
  const int64_t num_logits = int64_t{max_logits_rows_} * model.vocab_size;
  // Tokens with positions and tables and partial results; rows of logits, page
  // ids, counts.
  const int64_t num_ints =
      4 * AlignedInts(bounds.max_tokens + 1) + AlignedInts(max_logits_rows_) +
      AlignedInts(std::max(kMaxCallTableWords, MaxPages(model))) + kAlignedInts;
  const int64_t num_items = bounds.max_attention_items;
  ASSIGN_OR_RETURN(stream_, CudaStream::Create());
  ASSIGN_OR_RETURN(staged_, PinnedBuffer<int>::Create(num_ints));
  ASSIGN_OR_RETURN(ints_, TakeDeviceMemory<int>("steps", num_ints));
  ASSIGN_OR_RETURN(staged_items_,
                   PinnedBuffer<CudaAttentionItem>::Create(num_items));
  ASSIGN_OR_RETURN(items_,
                   TakeDeviceMemory<CudaAttentionItem>("steps", num_items));
  cache_.emplace(model_->cache(), CudaPageTokens(), model_->device());
  RETURN_IF_ERROR(cache_->ReserveCopyList());
  ASSIGN_OR_RETURN(host_logits_, PinnedBuffer<float>::Create(num_logits));
  ASSIGN_OR_RETURN(logits_, TakeDeviceMemory<float>("steps", num_logits));
  return absl::OkStatus();
}

absl::Status CudaBlockingModel::Forward(const StepPlan& plan,
                                        std::span<float> logits) {
  CHECK_EQ(logits.size(),
           size_t{1} * plan.num_logits * description().vocab_size)
      << "logits of a plan";
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(model_->device().ordinal));
  RETURN_IF_ERROR(cache_->CopyPages(plan.page_copies, stream_.get()));
  CudaCallBounds bounds = model_->bounds();
  bounds.max_logits = max_logits_rows_;
  CudaPlanReader reader(&plan, bounds);
  while (!reader.is_done()) {
    if (plan.stop.stop_requested()) {
      return MakeError(absl::StatusCode::kCancelled, "the step was given up");
    }
    const CudaPlanCall call = reader.Next();
    const size_t size = call.logits_rows.size() * description().vocab_size;
    RETURN_IF_ERROR(Run(call, logits.first(size)));
    logits = logits.subspan(size);
  }
  return absl::OkStatus();
}

// Fill level of the staging memory, and the batch in device addresses.
struct CudaBlockingModel::Staged {
  CudaBatch batch;
  size_t num_ints = 0;
  size_t num_items = 0;
};

// Packs arrays and work lists into staging memory, one after the other.
class CudaBlockingModel::Stager {
 public:
  Stager(const CudaBlockingModel& owner)
      : owner_(owner), ints_(owner.staged_.data()) {}

  // Appends an array; returns its address on the device.
  const int* Add(std::span<const int> values) {
    return owner_.ints_.data() + ints_.Add(values);
  }
  // Appends a work list. Add() returned `positions` and `tables`.
  CudaAttentionInputs AddAttention(std::span<const CudaAttentionRow> rows,
                                   int num_queries, const int* positions,
                                   const int* tables, int table_stride) {
    const CudaModel& model = *owner_.model_;
    const CudaAttentionWork work = PlanCudaAttention(
        rows, {}, num_queries, model.attention_shape(),
        model.bounds().max_attention_items,
        model.bounds().max_attention_partials, model.device());
    std::ranges::copy(work.items, owner_.staged_items_.data() + num_items_);
    const CudaAttentionItem* const items = owner_.items_.data() + num_items_;
    num_items_ += work.items.size();
    return {.items = items,
            .item_counts = Add(work.item_counts),
            .partial_indptr = Add(work.partial_indptr),
            .max_queries = num_queries,
            .max_items = static_cast<int>(work.items.size()),
            .max_partials = work.partial_indptr.back(),
            .has_own_tables = work.has_own_tables,
            .positions = positions,
            .tables = tables,
            .table_stride = table_stride};
  }
  size_t num_ints() const { return static_cast<size_t>(ints_.size()); }
  size_t num_items() const { return num_items_; }

 private:
  const CudaBlockingModel& owner_;
  IntArrays ints_;
  size_t num_items_ = 0;
};

CudaBlockingModel::Staged CudaBlockingModel::Stage(
    const CudaPlanCall& call) const {
  Stager stager(*this);
  CudaBatch batch;
  const int* const tables = stager.Add(call.FlatTables(model_->null_page()));
  batch.num_tokens = call.num_tokens();
  batch.tokens = stager.Add(call.tokens);
  batch.positions = stager.Add(call.positions);
  batch.token_tables = stager.Add(call.token_tables);
  batch.num_logits = static_cast<int>(call.logits_rows.size());
  batch.logits_tokens = stager.Add(call.logits_rows);
  batch.attention = stager.AddAttention(call.attention_rows, batch.num_tokens,
                                        batch.positions, tables, call.stride);
  return {.batch = batch,
          .num_ints = stager.num_ints(),
          .num_items = stager.num_items()};
}

absl::Status CudaBlockingModel::Run(const CudaPlanCall& call,
                                    std::span<float> logits) {
  const Staged staged = Stage(call);
  const cudaStream_t stream = stream_.get();
  RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(ints_.data(), staged_.data(),
                                       staged.num_ints * sizeof(int),
                                       cudaMemcpyDefault, stream));
  RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
      items_.data(), staged_items_.data(),
      staged.num_items * sizeof(CudaAttentionItem), cudaMemcpyDefault, stream));
  RETURN_IF_ERROR(model_->Enqueue(staged.batch, logits_.data(), stream));
  RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(host_logits_.data(), logits_.data(),
                                       logits.size_bytes(), cudaMemcpyDefault,
                                       stream));
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  std::copy_n(host_logits_.data(), logits.size(), logits.data());
  return absl::OkStatus();
}

}  // namespace espalier
