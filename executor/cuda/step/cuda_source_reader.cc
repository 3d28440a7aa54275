#include "executor/cuda/step/cuda_source_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/page_count.h"
#include "base/status.h"
#include "executor/cuda/transfer/cuda_array_layout.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// Words per segment of a call's delta.
constexpr int kWordsPerSegment = 64;
constexpr int kNumTokenArrays = 5;

int64_t NumCallWords(const CudaCallBounds& bounds) {
  constexpr int64_t kItemWords = sizeof(CudaAttentionItem) / sizeof(int);
  return (kNumTokenArrays + 1) * int64_t{bounds.max_tokens} + 3 +
         MaxSourceTableWords(bounds) + kItemWords * bounds.max_attention_items;
}

// Returns the most features of a call, of whole sources.
size_t NumCallFeatures(const CudaModel& model) {
  const EncoderDescription& encoder = *model.description().encoder;
  if (!encoder.features) return 0;
  return size_t(model.bounds().max_tokens / encoder.max_source_tokens) *
         encoder.features->num_rows * encoder.features->num_cols;
}

absl::Status CheckInput(const EncoderInput& input,
                        const EncoderDescription& encoder) {
  const FeatureMatrix* const features = input.features();
  if (!encoder.features) {
    if (features == nullptr) return absl::OkStatus();
    return InvalidArgument(
        "a source must be tokens for this model, got features");
  }
  if (features == nullptr) {
    return InvalidArgument(
        "a source must be features for this model, got tokens");
  }
  if (features->shape == *encoder.features &&
      input.length() == encoder.max_source_tokens) {
    return absl::OkStatus();
  }
  return InvalidArgument("a source must be ", encoder.features->num_rows,
                         " rows of ", encoder.features->num_cols,
                         " features and ", encoder.max_source_tokens,
                         " positions, got ", features->shape.num_rows, " of ",
                         features->shape.num_cols, " and ", input.length());
}

// Creates an event without time stamp, which is faster on the device.
absl::StatusOr<CudaEvent> MakeReadEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return CudaEvent(event);
}

void AddTokens(const CudaSourceRead& read, int null_table,
               CudaSourceCall* call) {
  const int length = read.input->length();
  const int table = static_cast<int>(call->attention_rows.size());
  call->attention_rows.push_back({.first_query = call->num_tokens(),
                                  .num_queries = length,
                                  .table = table,
                                  .max_positions = length,
                                  .sees_all = 1});
  const auto tokens = read.input->tokens();
  call->tokens.insert(call->tokens.end(), tokens.begin(), tokens.end());
  if (read.input->features() != nullptr) call->features.push_back(read.input);
  for (int i = 0; i < length; ++i) {
    call->positions.push_back(i);
    call->token_tables.push_back(table);
    call->cross_tables.push_back(i < read.num_stored ? null_table : read.table);
    call->last_positions.push_back(length - 1);
  }
}

// Sets the tables to consecutive pages of the encoder, source after source.
void SetTables(int page_size, CudaSourceCall* call) {
  call->tables.resize(call->attention_rows.size() * call->stride);
  int next_page = 0;
  for (const CudaAttentionRow& row : call->attention_rows) {
    const int64_t num_pages = NumPages(row.num_queries, page_size);
    for (int64_t page = 0; page < num_pages; ++page) {
      call->tables[row.table * call->stride + page] = next_page++;
    }
  }
}

}  // namespace

absl::StatusOr<std::pair<CudaSourceCall, size_t>> NextSourceCall(
    std::span<const CudaSourceRead> reads, const CudaCallBounds& bounds,
    int page_size, int null_table) {
  CudaSourceCall call;
  size_t count = 0;
  int64_t num_tokens = 0, num_pages = 0;
  for (const CudaSourceRead& read : reads) {
    const int64_t pages = NumPages(read.input->length(), page_size);
    const int64_t stride = std::max<int64_t>(call.stride, pages);
    num_tokens += read.input->length();
    num_pages += pages;
    if (num_tokens > bounds.max_tokens || num_pages > bounds.max_source_pages ||
        (count + 1) * stride > MaxSourceTableWords(bounds)) {
      break;
    }
    call.stride = static_cast<int>(stride);
    AddTokens(read, null_table, &call);
    ++count;
  }
  if (count == 0) {
    return ResourceExhausted("a source of ", reads[0].input->length(),
                             " positions, a call has room for ",
                             bounds.max_tokens, " on ", bounds.max_source_pages,
                             " pages");
  }
  SetTables(page_size, &call);
  return std::pair(std::move(call), count);
}

absl::StatusOr<std::unique_ptr<CudaSourceReader>> CudaSourceReader::Create(
    CudaModel* model, const CudaStepMemory* memory) {
  std::unique_ptr<CudaSourceReader> reader(new CudaSourceReader(model, memory));
  RETURN_IF_ERROR(reader->Init());
  return reader;
}

int64_t CudaSourceReader::LayOut(int* words) {
  const CudaCallBounds& bounds = model_->bounds();
  CudaArrayLayout layout(words);
  for (int** const array :
       {&arrays_.tokens, &arrays_.positions, &arrays_.token_tables,
        &arrays_.cross_tables, &arrays_.last_positions}) {
    layout.Add(array, bounds.max_tokens);
  }
  layout.Add(&arrays_.tables, MaxSourceTableWords(bounds));
  ForEachAttentionArray(
      [&](const CudaArrayInfo& info, auto*& array) {
        layout.Add(&array, info.max_size(memory_->limits()));
      },
      static_cast<CudaAttentionArrays<DeviceArray>&>(arrays_));
  return layout.num_words();
}

absl::Status CudaSourceReader::Init() {
  ASSIGN_OR_RETURN(words_, TakeDeviceMemory<int>("sources", LayOut(nullptr)));
  LayOut(words_.data());
  const size_t num_features = NumCallFeatures(*model_);
  ASSIGN_OR_RETURN(
      features_, TakeDeviceMemory<float>("features of sources", num_features));
  const int64_t num_words = NumCallWords(model_->bounds());
  for (Upload& upload : uploads_) {
    ASSIGN_OR_RETURN(upload.was_read, MakeReadEvent());
    ASSIGN_OR_RETURN(upload.features,
                     PinnedBuffer<float>::Create(num_features));
    ASSIGN_OR_RETURN(
        upload.delta,
        CudaDeltaBuffer::Create(
            num_words / kWordsPerSegment + 2 * kNumTokenArrays, num_words));
  }
  delta_.emplace(words_.data());
  return absl::OkStatus();
}

int64_t CudaSourceReader::num_pinned_bytes() const {
  int64_t count = 0;
  for (const Upload& upload : uploads_) {
    count += upload.delta.num_bytes() + upload.features.size_bytes();
  }
  return count;
}

absl::Status CudaSourceReader::Enqueue(std::span<const CudaSourceRead> reads,
                                       cudaStream_t stream) {
  for (const CudaSourceRead& read : reads) {
    RETURN_IF_ERROR(CheckInput(*read.input, *model_->description().encoder));
  }
  while (!reads.empty()) {
    ASSIGN_OR_RETURN(
        const auto next,
        NextSourceCall(reads, model_->bounds(), model_->description().page_size,
                       memory_->padding_table()));
    RETURN_IF_ERROR(Enqueue(next.first, stream));
    reads = reads.subspan(next.second);
  }
  return absl::OkStatus();
}

absl::Status CudaSourceReader::Enqueue(const CudaSourceCall& call,
                                       cudaStream_t stream) {
  const CudaStepLimits& limits = memory_->limits();
  const int num_tokens = call.num_tokens();
  const CudaAttentionWork work = PlanCudaAttention(
      call.attention_rows, {}, num_tokens, model_->attention_shape(),
      limits.max_items, limits.max_partials, model_->device());
  delta_->Clear();
  delta_->Put<int>(arrays_.tokens, call.tokens);
  delta_->Put<int>(arrays_.positions, call.positions);
  delta_->Put<int>(arrays_.token_tables, call.token_tables);
  delta_->Put<int>(arrays_.cross_tables, call.cross_tables);
  delta_->Put<int>(arrays_.last_positions, call.last_positions);
  delta_->Put<int>(arrays_.tables, call.tables);
  delta_->Put<CudaAttentionItem>(arrays_.items, work.items);
  delta_->Put<int>(arrays_.item_counts, work.item_counts);
  delta_->Put<int>(arrays_.partial_indptr, work.partial_indptr);
  Upload& upload = uploads_[num_uploads_++ % uploads_.size()];
  // This returns at once if the event was never recorded.
  RETURN_IF_CUDA_ERROR(cudaEventSynchronize(upload.was_read.get()));
  const CudaBeamState& state = memory_->arrays().state;
  RETURN_IF_ERROR(
      upload.delta.Send(*delta_, words_.data(), state.clock, stream));
  RETURN_IF_ERROR(SendFeatures(call, upload.features, stream));
  RETURN_IF_CUDA_ERROR(cudaEventRecord(upload.was_read.get(), stream));
  CudaBatch batch;
  batch.cross_attention.tables = memory_->source_table(0);
  batch.cross_attention.table_stride = limits.row_stride();
  batch.sources = {
      .num_tokens = num_tokens,
      .tokens = call.features.empty() ? arrays_.tokens : nullptr,
      .features = call.features.empty() ? nullptr : features_.data(),
      .positions = arrays_.positions,
      .token_tables = arrays_.token_tables,
      .attention = {.items = arrays_.items,
                    .item_counts = arrays_.item_counts,
                    .partial_indptr = arrays_.partial_indptr,
                    .max_queries = num_tokens,
                    .max_items = static_cast<int>(work.items.size()),
                    .max_partials = work.partial_indptr.back(),
                    .has_own_tables = work.has_own_tables,
                    .positions = arrays_.last_positions,
                    .bias_positions = arrays_.positions,
                    .tables = arrays_.tables,
                    .table_stride = call.stride},
      .cross_tables = arrays_.cross_tables};
  return model_->Enqueue(batch, nullptr, stream);
}

absl::Status CudaSourceReader::SendFeatures(const CudaSourceCall& call,
                                            const PinnedBuffer<float>& staging,
                                            cudaStream_t stream) {
  if (call.features.empty()) return absl::OkStatus();
  size_t size = 0;
  for (const auto& input : call.features) {
    const std::vector<float>& values = input->features()->values;
    CHECK_LE(size + values.size(), staging.size());
    std::ranges::copy(values, staging.data() + size);
    size += values.size();
  }
  return CudaStatus(
      cudaMemcpyAsync(features_.data(), staging.data(), size * sizeof(float),
                      cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
}

}  // namespace espalier
