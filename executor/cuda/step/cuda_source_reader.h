// CudaSourceReader: has the model's encoder read the sources of a step, whole
// ones, in as many calls of the model as its bounds ask for. Each call's tokens
// and work list are sent ahead of it, through pinned memory that is used in
// turn. Such steps are never replayed from a graph.
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
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "executor/cuda/transfer/cuda_delta_buffer.h"

namespace espalier {

// A source to read.
struct CudaSourceRead {
  std::shared_ptr<const std::vector<TokenId>> tokens;
  // Of its pages (CudaStepMemory::source_table).
  int table = 0;
  // Positions [first_fed, end_fed), whose keys and values are stored in those
  // pages. The encoder reads all tokens; keys and values in front of these are
  // stored already, those after them in a later step.
  int first_fed = 0;
  int end_fed = 0;
};

// A call of the model's encoder, in vectors of the host.
struct CudaSourceCall {
  std::vector<TokenId> tokens;
  std::vector<int> positions;       // in their sources
  std::vector<int> token_tables;    // of their sources, in `tables`
  std::vector<int> cross_tables;    // where they are stored
  std::vector<int> last_positions;  // of their sources
  std::vector<CudaAttentionRow> attention_rows;
  // [sources, stride]  the encoder's pages, each of one table; unused entries
  // are 0
  std::vector<int> tables;
  int stride = 1;
};

// How many page ids the tables of a call have room for, [sources, stride]. The
// stride is that of the longest source, so that many short sources beside a
// long one run out of it before they run out of pages; one source alone always
// fits.
inline int MaxSourceTableWords(const CudaCallBounds& bounds) {
  return 4 * bounds.max_source_pages;
}

// The call that reads `reads` from the front, as many as fit, and how many
// these are. Tokens that are not stored have `null_table`.
// REQUIRES: reads is not empty.
// Errors: kResourceExhausted if the first is larger than the bounds.
absl::StatusOr<std::pair<CudaSourceCall, size_t>> NextSourceCall(
    std::span<const CudaSourceRead> reads, const CudaCallBounds& bounds,
    int page_size, int null_table);

class CudaSourceReader {
 public:
  // Of a model with an encoder. Both outlive it.
  // Errors: kResourceExhausted; as base/cuda.h.
  static absl::StatusOr<std::unique_ptr<CudaSourceReader>> Create(
      CudaModel* model, const CudaStepMemory* memory);

  // Enqueues the reading of all of them.
  // Errors: kResourceExhausted if a source is larger than a call of the model;
  // the model's; as base/cuda.h.
  absl::Status Enqueue(std::span<const CudaSourceRead> reads,
                       cudaStream_t stream);

  int64_t num_bytes() const {
    return static_cast<int64_t>(words_.size_bytes());
  }
  int64_t num_pinned_bytes() const;

 private:
  // In device memory.
  struct Arrays : CudaAttentionArrays<DeviceArray> {
    int* tokens = nullptr;  // [max_tokens], and those below
    int* positions = nullptr;
    int* token_tables = nullptr;
    int* cross_tables = nullptr;
    int* last_positions = nullptr;
    int* tables = nullptr;  // [MaxSourceTableWords]
  };
  struct Upload {
    CudaDeltaBuffer delta;
    CudaEvent was_read;
  };

  CudaSourceReader(CudaModel* model, const CudaStepMemory* memory)
      : model_(model), memory_(memory) {}
  absl::Status Init();
  // Says where the arrays are in memory that begins at `words`; returns how
  // many words they take.
  int64_t LayOut(int* words);
  absl::Status Enqueue(const CudaSourceCall& call, cudaStream_t stream);

  CudaModel* const model_;
  const CudaStepMemory* const memory_;
  Arrays arrays_;
  DeviceBuffer<int> words_;
  std::optional<CudaDelta> delta_;
  std::array<Upload, 4> uploads_;
  int64_t num_uploads_ = 0;
};

}  // namespace espalier
