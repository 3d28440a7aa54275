// CudaModel: the interface between a model on a GPU and the GPU executor
// (executor/cuda/cuda_executor.h): the model's description, its key/value
// cache, and one forward pass over a batch in device memory. CudaTransformer
// (model/cuda/cuda_transformer.h) implements it, and so can a caller's own
// model. The executor does everything around the forward pass: page tables,
// work lists of attention, selection, sampling, graphs.
//
// A process may have any number of models, on one device or on several; each
// has an executor of its own.
//
// All inputs that change from step to step are in device memory, so a call can
// be captured in a graph and replayed. Only the counts are on the host.
//
// Thread safety: one thread calls Enqueue, on one stream at a time. All else is
// constant and may be read from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "absl/status/status.h"
#include "base/alignment.h"
#include "base/cuda_memory.h"
#include "base/cuda_resources.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "kernels/attention/cuda_attention.h"

namespace espalier {

// Bounds of one call of a model. They size its workspace.
struct CudaCallBounds {
  int max_tokens = 1;
  int max_logits = 1;  // rows of logits
  // Items of attention's work list, and its partial results.
  int max_attention_items = 1;
  int max_attention_partials = 1;
  // Pages of the sources that one call reads, each source rounded up to whole
  // pages. Their tokens are at most max_tokens. 0: the model has no encoder.
  int max_source_pages = 0;
};

// Whole sources that an encoder reads in a call.
struct CudaSourceBatch {
  int num_tokens = 0;  // positions, if sources are features
  // [num_tokens]; null if sources are features.
  const int* tokens = nullptr;
  // Sources that are features, one after another: each has the rows and columns
  // of EncoderDescription::features, and max_source_tokens of the positions.
  const float* features = nullptr;  // [sources, num_rows, num_cols]
  const int* positions = nullptr;   // [num_tokens]  in the source
  // [num_tokens], row of attention.tables. These tables list pages of the
  // encoder, in [0, max_source_pages); each page belongs to one table.
  const int* token_tables = nullptr;
  // Queries are the tokens. attention.positions is the last position of each
  // token's source, so a token attends to all of its source. bias_positions is
  // `positions`.
  CudaAttentionInputs attention = {};
  // [num_tokens], row of CudaBatch::cross_attention.tables that receives the
  // token's keys and values of cross-attention, or a table of null pages if
  // they are already stored.
  const int* cross_tables = nullptr;
};

// Consecutive tokens of a batch whose cross-attention is reported
// (EncoderDescription::reported_attention). A value of the host.
struct CudaAlignedTokens {
  int first_token = 0;
  int num_tokens = 0;
  int source_table = 0;  // row of CudaBatch::cross_attention.tables
  const AlignmentQuery* query = nullptr;  // in host memory
  // [num_tokens, heads, num_positions]  f32, out: memory that the device
  // writes in place, scale * q k^T before the softmax.
  float* scores = nullptr;
};

// One call's batch, in device memory except for the counts.
struct CudaBatch {
  int num_tokens = 0;
  const int* tokens = nullptr;         // [num_tokens]
  const int* positions = nullptr;      // [num_tokens]
  const int* token_tables = nullptr;   // [num_tokens]  row of attention.tables
  CudaAttentionInputs attention = {};  // queries are the tokens
  int num_logits = 0;
  // [num_logits], tokens that have logits; null: the first num_logits.
  const int* logits_tokens = nullptr;
  // Models with an encoder: tokens, positions and pages above are the
  // decoder's. Each token also attends to its source: cross_attention.positions
  // is the last position of the source, and cross_attention.tables list the
  // pages of sources.
  CudaAttentionInputs cross_attention = {};
  // The encoder reads sources before the decoder reads tokens. A batch may have
  // sources alone; then only the tables of cross_attention are set.
  CudaSourceBatch sources = {};
  // In host memory. A call that has any is not captured.
  std::span<const CudaAlignedTokens> aligned = {};
};

class CudaModel {
 public:
  virtual ~CudaModel() = default;

  virtual const ModelDescription& description() const = 0;
  // Device of the batch, the logits and the cache.
  virtual const CudaDevice& device() const = 0;
  virtual const CudaCallBounds& bounds() const = 0;
  // Key/value cache: description().num_pages pages and the null page. Other
  // code than the model reads and writes it only through a CudaCacheEngine
  // (kernels/kv_cache/cuda_cache_engine.h).
  virtual const CudaKvCache& cache() const = 0;
  // Shape for which the executor plans the work lists of attention.
  virtual CudaAttentionShape attention_shape() const = 0;
  // Page that all inactive rows write to.
  virtual PageId null_page() const = 0;
  // Memory that the model holds, by purpose.
  virtual CudaMemoryParts memory() const = 0;

  // Enqueues one forward pass: writes keys and values of all tokens, fills
  //   logits  [batch.num_logits, vocab_size]  f32  device
  // Works on device(), whatever the thread's current device is, and leaves the
  // current device unchanged. Never allocates or waits; may be captured. One of
  // its kernels is a GridDependency::kBarrier (base/grid_dependency.h), as
  // CudaEmbed's is, because later kernels read data from before the pass early.
  // A token that no work item names stores its keys and values in layer 0 and
  // is otherwise undefined.
  // REQUIRES: tokens, positions, tables and pages are within their limits.
  // Errors: kInvalidArgument if a count is above bounds(); kInternal if a
  // launch is refused.
  virtual absl::Status Enqueue(const CudaBatch& batch, float* logits,
                               cudaStream_t stream) = 0;
};

}  // namespace espalier
