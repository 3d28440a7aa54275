// CudaModel: a model on a GPU as an executor for GPUs sees it
// (executor/cuda/cuda_executor.h): what it is, where its keys and values are,
// and one forward pass over a batch in device memory. CudaTransformer
// (model/cuda/cuda_transformer.h) is one. A caller's own model implements this
// interface; the executor does everything around the forward pass: page
// tables, work lists of attention, selection, sampling, graphs.
//
// A process may have any number of models, on one device or on several; each
// has an executor of its own.
//
// All that changes from step to step is in device memory, so a call can be
// captured in a graph and replayed. Only the counts are the host's.
//
// Thread safety: Enqueue is called by one thread, on one stream at a time. All
// else is constant and may be read from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda_memory.h"
#include "base/cuda_resources.h"
#include "base/ids.h"
#include "exec_request/model_description.h"
#include "kernels/attention/cuda_attention.h"

namespace espalier {

// The most that one call of a model has. They size what it computes in.
struct CudaCallBounds {
  int max_tokens = 1;
  int max_logits = 1;  // rows of logits
  // Of attention's work list, and items summed over tokens.
  int max_attention_items = 1;
  int max_attention_partials = 1;
  // Of sources that are read in a call, each rounded up to whole pages; they
  // have max_tokens tokens at most. 0: the model has no encoder.
  int max_source_pages = 0;
};

// What an encoder reads in a call: whole sources.
struct CudaSourceBatch {
  int num_tokens = 0;
  const int* tokens = nullptr;     // [num_tokens]
  const int* positions = nullptr;  // [num_tokens]  in their sources
  // [num_tokens]  of attention.tables, whose pages are the encoder's: any of
  // [0, max_source_pages), each of one table.
  const int* token_tables = nullptr;
  // Queries are the tokens, whose attention.positions are the last one's of
  // their source: they see all of it. Its bias_positions are `positions`.
  CudaAttentionInputs attention = {};
  // [num_tokens]  of CudaBatch::cross_attention.tables, where a token's
  // position has its keys and values of cross-attention; a table of null pages
  // where these are there already.
  const int* cross_tables = nullptr;
};

// One call's batch, in device memory except for the counts.
struct CudaBatch {
  int num_tokens = 0;
  const int* tokens = nullptr;        // [num_tokens]
  const int* positions = nullptr;     // [num_tokens]
  const int* token_tables = nullptr;  // [num_tokens]  whose pages it is kept in
  CudaAttentionInputs attention = {};  // queries are the tokens
  int num_logits = 0;
  // [num_logits] which tokens have logits; null: the first num_logits.
  const int* logits_tokens = nullptr;
  // With an encoder. Tokens are the decoder's, and so are their positions and
  // pages. Each attends to its source too, whose last position is the query's;
  // cross_attention.tables are of the pages of sources.
  CudaAttentionInputs cross_attention = {};
  // Read before the tokens, or without any: then of cross_attention the tables
  // alone are there.
  CudaSourceBatch sources = {};
};

class CudaModel {
 public:
  virtual ~CudaModel() = default;

  virtual const ModelDescription& description() const = 0;
  // Where the batch, the logits and the cache are.
  virtual const CudaDevice& device() const = 0;
  virtual const CudaCallBounds& bounds() const = 0;
  // Its pages, whose tails the executor copies. A page more than
  // description().num_pages: the null page.
  virtual const CudaKvCache& cache() const = 0;
  // What the executor plans the work lists of attention for.
  virtual CudaAttentionShape attention_shape() const = 0;
  // The page of inactive rows, which all of them write to.
  virtual PageId null_page() const = 0;
  // What it holds, and for what.
  virtual CudaMemoryParts memory() const = 0;

  // Enqueues one forward pass: writes keys and values of all tokens, fills
  //   logits  [batch.num_logits, vocab_size]  f32  device
  // Works on device(), whatever the thread's current device is, and leaves that
  // alone. Never allocates or waits; may be captured. One of its kernels is a
  // GridDependency::kBarrier (base/grid_dependency.h), as CudaEmbed's is: the
  // kernels that follow read early what came before the pass. A token that no
  // item of work names stores its keys and values in layer 0 and is otherwise
  // undefined.
  // REQUIRES: tokens, positions, tables and pages are within their limits.
  // Errors: kInvalidArgument if a count is above bounds(); kInternal if a
  // launch is refused.
  virtual absl::Status Enqueue(const CudaBatch& batch, float* logits,
                               cudaStream_t stream) = 0;
};

}  // namespace espalier
