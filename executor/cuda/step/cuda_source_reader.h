// CudaSourceReader: runs the model's encoder on the sources of a step, in as
// many calls as the model's bounds require; a source is never split. The tokens
// or features and the work list of each call are sent before it through a ring
// of pinned buffers. Such steps are never replayed from a graph.
//
// Thread safety: as the executor's stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda_pinned_memory.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "exec_request/encoder_input.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "executor/cuda/transfer/cuda_delta_buffer.h"

namespace espalier {

// A source to read.
struct CudaSourceRead {
  std::shared_ptr<const EncoderInput> input;
  // Table of its pages (CudaStepMemory::source_table).
  int table = 0;
  // PlanSource::num_stored: the encoder reads all tokens, and the keys and
  // values of later positions are stored.
  int num_stored = 0;
};

// A call of the model's encoder, in vectors of the host.
struct CudaSourceCall {
  int num_tokens() const { return static_cast<int>(positions.size()); }

  std::vector<TokenId> tokens;  // empty, if sources are features
  std::vector<std::shared_ptr<const EncoderInput>> features;  // or empty
  std::vector<int> positions;       // by token, in its source
  std::vector<int> token_tables;    // by token, row of `tables`
  std::vector<int> cross_tables;    // by token, table that stores it
  std::vector<int> last_positions;  // by token, last position of its source
  std::vector<CudaAttentionRow> attention_rows;
  // [sources, stride]  the encoder's pages, in one table each; unused entries
  // are 0
  std::vector<int> tables;
  int stride = 1;
};

// Returns the capacity of CudaSourceCall::tables, in page ids. The longest
// source sets the stride, so many short sources beside a long one exhaust this
// before they exhaust the pages. A single source always fits.
inline int MaxSourceTableWords(const CudaCallBounds& bounds) {
  return 4 * bounds.max_source_pages;
}

// Returns a call for the first of `reads`, as many as fit, and their number.
// Tokens that are not stored have `null_table`.
// REQUIRES: reads is not empty.
// Errors: kResourceExhausted if the first is larger than the bounds.
absl::StatusOr<std::pair<CudaSourceCall, size_t>> NextSourceCall(
    std::span<const CudaSourceRead> reads, const CudaCallBounds& bounds,
    int page_size, int null_table);

class CudaSourceReader {
 public:
  // With an encoder of features takes pinned memory for four calls of them.
  // REQUIRES: the model has an encoder; both arguments outlive the reader.
  // Errors: kResourceExhausted; as base/cuda.h.
  static absl::StatusOr<std::unique_ptr<CudaSourceReader>> Create(
      CudaModel* model, const CudaStepMemory* memory);

  // Enqueues the encoder calls for all of `reads`.
  // Errors: kInvalidArgument if a source is not what the model's encoder reads;
  // kResourceExhausted if one exceeds the bounds of a call; the model's; as
  // base/cuda.h.
  absl::Status Enqueue(std::span<const CudaSourceRead> reads,
                       cudaStream_t stream);

  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.size_bytes() + features_.size_bytes());
  }
  int64_t num_pinned_bytes() const;

 private:
  // In device memory.
  struct Arrays : CudaAttentionArrays<DeviceArray> {
    int* tokens = nullptr;  // [max_tokens], like the next four
    int* positions = nullptr;
    int* token_tables = nullptr;
    int* cross_tables = nullptr;
    int* last_positions = nullptr;
    int* tables = nullptr;  // [MaxSourceTableWords]
  };
  struct Upload {
    CudaDeltaBuffer delta;
    PinnedBuffer<float> features;
    CudaEvent was_read;
  };

  CudaSourceReader(CudaModel* model, const CudaStepMemory* memory)
      : model_(model), memory_(memory) {}
  absl::Status Init();
  // Lays the arrays out in memory that begins at `words`; returns their size in
  // words.
  int64_t LayOut(int* words);
  absl::Status Enqueue(const CudaSourceCall& call, cudaStream_t stream);
  absl::Status SendFeatures(const CudaSourceCall& call,
                            const PinnedBuffer<float>& staging,
                            cudaStream_t stream);

  CudaModel* const model_;
  const CudaStepMemory* const memory_;
  Arrays arrays_;
  DeviceBuffer<int> words_;
  DeviceBuffer<float> features_;  // a call's; empty, if sources are tokens
  std::optional<CudaDelta> delta_;
  std::array<Upload, 4> uploads_;
  int64_t num_uploads_ = 0;
};

}  // namespace espalier
