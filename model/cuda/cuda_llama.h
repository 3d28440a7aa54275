// CudaLlama: the forward pass of Llama-family models on the device, over paged
// keys and values. It computes what LlamaModel does, in bf16, f16 or f32; the
// residual stream, norms, softmax and logits are float32 in all of them.
//
// One entry point takes rows of any length: prompt chunks, decoding rows, many
// at once. All that changes from step to step is in device memory, so a call
// can be captured in a graph and replayed. Only the counts are the host's.
//
//   embed + norm -> [ q k v, rotate and store k v, attend, output +=, norm,
//                     gate up silu, down +=, norm ] x layers -> head
//
// In the last layer, once keys and values are stored and attention has run,
// only the tokens that have logits go on.
//
// A token's logits depend on its own sequence and, by the rounding of sums
// alone, on how many tokens a call has and how attention's work was divided.
//
// Thread rule: one thread, one stream at a time. Every call works on its own
// device, whatever the calling thread's current one is, and leaves that alone.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "exec_request/model.h"
#include "kernels/attention/cuda_attention.h"
#include "kernels/matmul/packed_matrix.h"
#include "model/llama_config.h"

namespace espalier {

struct CudaLlamaOptions {
  int page_size = 16;  // tokens; 16, 32 or 64 are fast
  // Key/value memory; description().num_pages is what it holds, less one page
  // that rows without a beam write to.
  int64_t kv_cache_bytes = int64_t{1} << 30;
  DType dtype = DType::kBFloat16;  // of weights, activations, keys and values
  // Bounds of one call, which size the scratch.
  int max_tokens = 4096;
  // Lines of logits: of beams, samples and scored lines of prompts. 0 stands
  // for as many as 1 GiB of logits holds, but 256 at least, up to max_tokens
  // and kMaxCudaSelectRows.
  int max_logits = 0;
  // Of attention's work; 0 stands for as many as divide any call well.
  int max_attention_items = 0;
  int max_attention_partials = 0;  // items, summed over tokens
  // Graphs of steps that a CudaExecutor keeps, of the shapes used last; 0:
  // none. A step whose graph is not there, or has no memory, runs without:
  // slower by what launching its kernels one by one takes.
  int max_graphs = 128;
};

// `options` for a model of so many tokens, with its zeros filled in.
CudaLlamaOptions WithBounds(CudaLlamaOptions options, int vocab_size);

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
};

class CudaLlama {
 public:
  // Loads a model directory as LlamaModel does, converting weights to
  // options.dtype.
  // Errors: as LlamaModel::Load; kInvalidArgument naming the value if an option
  // is out of range (a negative max_graphs among them), the model has a
  // head_dim or hidden_size the kernels do not take, or a weight that float16
  // cannot hold; kResourceExhausted, naming the bytes, if device memory runs
  // out.
  static absl::StatusOr<std::unique_ptr<CudaLlama>> Load(
      const std::string& directory, const CudaLlamaOptions& options,
      const CudaDevice& device);
  // The same with normally distributed weights made on the device, to measure
  // shapes nobody has weights for.
  static absl::StatusOr<std::unique_ptr<CudaLlama>> Random(
      const LlamaConfig& config, const CudaLlamaOptions& options,
      const CudaDevice& device);
  virtual ~CudaLlama() = default;

  virtual const ModelDescription& description() const = 0;
  virtual const LlamaConfig& config() const = 0;
  virtual const CudaKvCache& cache() const = 0;
  virtual CudaAttentionShape attention_shape() const = 0;
  // The page that belongs to nobody: cache().num_pages - 1.
  virtual PageId spare_page() const = 0;
  // What it holds, and for what. Constant.
  virtual CudaMemoryParts memory() const = 0;

  // Enqueues one forward pass: writes keys and values of all tokens, fills
  //   logits  [batch.num_logits, vocab_size]  f32  device
  // Never allocates or waits; may be captured. A token that no item of work
  // names stores what it should in layer 0 and is otherwise undefined.
  // REQUIRES: tokens, positions, tables and pages are within their bounds.
  // Errors: kInvalidArgument if a count is above the options' bounds;
  // kInternal if a launch is refused.
  virtual absl::Status Enqueue(const CudaBatch& batch, float* logits,
                               cudaStream_t stream) = 0;
};

}  // namespace espalier
