#include "executor/cuda/cuda_blocking_model.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/cuda_device_scope.h"
#include "base/cuda_memory.h"
#include "base/status.h"
#include "kernels/kv_cache/cuda_copy_tails.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// Rows of logits of a call, at most: so much is pinned for them.
constexpr int kMaxLogitsRows = 64;
// Page ids of a call, and of the longest sequence if that has more.
constexpr int kMaxTableWords = 1 << 20;
constexpr int kMaxCopiesAtOnce = 1024;
// Arrays in one block of ints begin at multiples of this.
constexpr int kAlignedInts = 4;

int64_t AlignedInts(int64_t count) {
  return (count + kAlignedInts - 1) / kAlignedInts * kAlignedInts;
}

int MaxPages(const ModelDescription& model) {
  return static_cast<int>(NumPages(model.max_context, model.page_size));
}

// Arrays of ints, one after the other, in pinned memory.
class IntArrays {
 public:
  explicit IntArrays(int* to) : to_(to) {}

  // Where they are, as an index.
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

// One call of the model, in vectors of the host.
struct CudaBlockingModel::Call {
  // [tables, stride]
  std::vector<int> FlatTables() const;

  std::vector<int> tokens;
  std::vector<int> positions;
  std::vector<int> token_tables;
  std::vector<int> logits_rows;                 // tokens that have logits
  std::vector<std::span<const PageId>> tables;  // by row
  std::vector<CudaAttentionRow> rows;
  int stride = 1;  // of tables
};

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
  num_copies_ = {};
  copies_ = {};
  items_ = {};
  staged_items_ = {};
  ints_ = {};
  staged_ = {};
  stream_ = {};
}

absl::Status CudaBlockingModel::Init() {
  const CudaCallBounds& bounds = model_->bounds();
  const ModelDescription& model = description();
  max_logits_rows_ = std::min(bounds.max_logits, kMaxLogitsRows);
  const int64_t num_logits = int64_t{max_logits_rows_} * model.vocab_size;
  // Tokens with positions and tables, partial results, rows of logits, page
  // ids, counts.
  const int64_t num_ints =
      4 * AlignedInts(bounds.max_tokens + 1) + AlignedInts(max_logits_rows_) +
      std::max(kMaxTableWords, MaxPages(model)) + 2 * kAlignedInts;
  ASSIGN_OR_RETURN(stream_, CudaStream::Create());
  ASSIGN_OR_RETURN(staged_, PinnedBuffer<int>::Create(num_ints));
  ASSIGN_OR_RETURN(ints_, TakeDeviceMemory<int>("drafting", num_ints));
  ASSIGN_OR_RETURN(staged_items_, PinnedBuffer<CudaAttentionItem>::Create(
                                      bounds.max_attention_items));
  ASSIGN_OR_RETURN(items_, TakeDeviceMemory<CudaAttentionItem>(
                               "drafting", bounds.max_attention_items));
  ASSIGN_OR_RETURN(copies_,
                   TakeDeviceMemory<PageCopy>("drafting", kMaxCopiesAtOnce));
  ASSIGN_OR_RETURN(num_copies_, TakeDeviceMemory<int>("drafting", 1));
  ASSIGN_OR_RETURN(host_logits_, PinnedBuffer<float>::Create(num_logits));
  ASSIGN_OR_RETURN(logits_, TakeDeviceMemory<float>("drafting", num_logits));
  return absl::OkStatus();
}

absl::Status CudaBlockingModel::Forward(const StepPlan& plan,
                                        std::span<float> logits) {
  CHECK_EQ(logits.size(),
           size_t{1} * plan.num_logits * description().vocab_size)
      << "logits of a plan";
  ASSIGN_OR_RETURN(const CudaDeviceScope scope,
                   CudaDeviceScope::Enter(model_->device().ordinal));
  RETURN_IF_ERROR(CopyTails(plan.page_copies));
  size_t row = 0;
  int num_fed = 0;  // of the row
  while (row < plan.rows.size()) {
    if (plan.stop.stop_requested()) {
      return MakeError(absl::StatusCode::kCancelled, "the step was given up");
    }
    const Call call = NextCall(plan, &row, &num_fed);
    const size_t size = call.logits_rows.size() * description().vocab_size;
    RETURN_IF_ERROR(Run(call, logits.first(size)));
    logits = logits.subspan(size);
  }
  return absl::OkStatus();
}

absl::Status CudaBlockingModel::CopyTails(std::span<const PageCopy> copies) {
  while (!copies.empty()) {
    const int count =
        static_cast<int>(std::min<size_t>(copies.size(), kMaxCopiesAtOnce));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(copies_.data(), copies.data(),
                                         count * sizeof(PageCopy),
                                         cudaMemcpyDefault, stream_.get()));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(num_copies_.data(), &count,
                                         sizeof(count), cudaMemcpyDefault,
                                         stream_.get()));
    RETURN_IF_ERROR(CudaCopyTails(copies_.data(), num_copies_.data(), count,
                                  model_->cache(), {}, model_->device(),
                                  stream_.get()));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
    copies = copies.subspan(count);
  }
  return absl::OkStatus();
}

CudaBlockingModel::Call CudaBlockingModel::NextCall(const StepPlan& plan,
                                                    size_t* row,
                                                    int* num_fed) const {
  Call call;
  for (; *row < plan.rows.size(); ++*row, *num_fed = 0) {
    const PlanRow& fed = plan.rows[*row];
    const std::span<const PageId> pages = plan.row_pages(*row);
    const int stride = std::max(call.stride, static_cast<int>(pages.size()));
    const int64_t num_words = int64_t{stride} * (std::ssize(call.tables) + 1);
    if (!call.tables.empty() && num_words > kMaxTableWords) break;
    // Tokens before the first that has logits, and as many of those as fit.
    const int num_before =
        std::max(fed.num_tokens - fed.num_logits - *num_fed, 0);
    const int num_rows_left =
        max_logits_rows_ - static_cast<int>(call.logits_rows.size());
    const int num_left =
        model_->bounds().max_tokens - static_cast<int>(call.tokens.size());
    const int count = std::min(
        {fed.num_tokens - *num_fed, num_before + num_rows_left, num_left});
    if (count == 0) break;
    const int table = static_cast<int>(call.tables.size());
    const int first = fed.first_position + *num_fed;
    call.rows.push_back({.first_query = static_cast<int>(call.tokens.size()),
                         .num_queries = count,
                         .table = table,
                         .max_positions = first + count});
    call.stride = stride;
    call.tables.push_back(pages);
    for (int i = 0; i < count; ++i) {
      if (i >= num_before) {
        call.logits_rows.push_back(static_cast<int>(call.tokens.size()));
      }
      call.tokens.push_back(plan.row_tokens(fed)[*num_fed + i]);
      call.positions.push_back(first + i);
      call.token_tables.push_back(table);
    }
    *num_fed += count;
    if (*num_fed < fed.num_tokens) break;
  }
  return call;
}

std::vector<int> CudaBlockingModel::Call::FlatTables() const {
  std::vector<int> flat(tables.size() * stride);
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t page = 0; page < tables[i].size(); ++page) {
      flat[i * stride + page] = tables[i][page].value;
    }
  }
  return flat;
}

// What is in staging memory, and the batch that it will be on the device.
struct CudaBlockingModel::Staged {
  CudaBatch batch;
  size_t num_ints = 0;
  size_t num_items = 0;
};

CudaBlockingModel::Staged CudaBlockingModel::Stage(const Call& call) const {
  const CudaCallBounds& bounds = model_->bounds();
  const int num_tokens = static_cast<int>(call.tokens.size());
  const CudaAttentionWork work =
      PlanCudaAttention(call.rows, {}, num_tokens, model_->attention_shape(),
                        bounds.max_attention_items,
                        bounds.max_attention_partials, model_->device());
  IntArrays staged(staged_.data());
  const int* const ints = ints_.data();
  CudaBatch batch;
  batch.num_tokens = num_tokens;
  batch.tokens = ints + staged.Add(call.tokens);
  batch.positions = ints + staged.Add(call.positions);
  batch.token_tables = ints + staged.Add(call.token_tables);
  batch.num_logits = static_cast<int>(call.logits_rows.size());
  batch.logits_tokens = ints + staged.Add(call.logits_rows);
  batch.attention = {.items = items_.data(),
                     .item_counts = ints + staged.Add(work.item_counts),
                     .partial_indptr = ints + staged.Add(work.partial_indptr),
                     .max_queries = num_tokens,
                     .max_items = static_cast<int>(work.items.size()),
                     .max_partials = work.partial_indptr.back(),
                     .positions = batch.positions,
                     .tables = ints + staged.Add(call.FlatTables()),
                     .table_stride = call.stride};
  std::ranges::copy(work.items, staged_items_.data());
  return {.batch = batch,
          .num_ints = static_cast<size_t>(staged.size()),
          .num_items = work.items.size()};
}

absl::Status CudaBlockingModel::Run(const Call& call, std::span<float> logits) {
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
