// TransformerWeights: a transformer's config and weights, without a KV cache.
// Models with caches of their own share them. The weights are packed for its
// forward pass: q, k, v of a layer as one matrix, gate and up as one. Matrices
// keep bf16 and f16, or are quantised; norms and biases are widened to float32.
// Embeddings stay in the checkpoint's files, which are mapped as long as there
// is a model: files may be removed or replaced by others under their names, but
// not written to or cut short.
//
// Thread safety: immutable after loading.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/matmul/packed_matrix.h"
#include "model/checkpoint.h"
#include "model/embedding_table.h"
#include "model/layer_parts.h"
#include "model/load_progress.h"
#include "model/transformer_config.h"

namespace espalier {

// What a model does not have is empty.
struct NormWeights {
  std::vector<float> weight;  // 1 is added, if norm_adds_one
  std::vector<float> bias;    // of NormKind::kLayer
};

struct ProductWeights {
  PackedMatrix matrix;      // [outputs, inputs]
  std::vector<float> bias;  // [outputs]
};

using TransformerLayerWeights = LayerParts<NormWeights, ProductWeights>;

// An encoder, or a decoder.
struct TransformerStackWeights {
  // [position_offset + max_context, hidden_size]; of sinusoidal ones nothing,
  // if they are not stored
  EmbeddingTable positions;
  NormWeights embedding_norm;  // [hidden_size]
  // By distance, as AttentionOptions::biases.
  std::vector<float> distance_biases;
  std::vector<TransformerLayerWeights> layers;
  NormWeights final_norm;
};

struct TransformerWeights : TransformerStackWeights {
  TransformerConfig config;
  WeightFormat format = WeightFormat::kAsStored;
  std::shared_ptr<const Checkpoint> checkpoint;  // of the embeddings
  EmbeddingTable embedding;                      // [vocab_size, embedding_size]
  PackedMatrix project_in;   // [hidden_size, embedding_size]; or nothing
  PackedMatrix project_out;  // [embedding_size, hidden_size]; or nothing
  PackedMatrix head;  // [vocab_size, embedding_size]; of the embedding, if tied
  std::vector<float> logits_bias;   // [vocab_size]
  TransformerStackWeights encoder;  // no layers if there is none
};

struct WeightOptions {
  // Of layers' matrices and the head, which is kInt8 where layers are kInt4,
  // and kAsStored where they are kFp8.
  WeightFormat format = WeightFormat::kAsStored;
  ThreadPool* pool = nullptr;  // null: the caller's thread alone
  LoadProgress progress = nullptr;
};

// Finds and checks the tensors (transformer_tensors.h) and packs them.
//
// Allocates as many bytes as the tensors but the embeddings have in the files,
// and twice those of 16-bit norms and biases and of 16-bit matrices that are
// stacked with those of another type, which all become f32; and a packed matrix
// has its rows rounded up to a multiple of 32, and where it is quantised its
// columns to one of a group, which next to nothing is in real models. So what a
// damaged file can ask for is at most 64 times its size, and quantised 160.
//
// Errors: as FindTransformerTensors, and ReadFp8Row (fp8_rows.h) with matrices
// of e4m3; kResourceExhausted if memory runs out.
absl::StatusOr<TransformerWeights> LoadTransformerWeights(
    std::shared_ptr<const Checkpoint> checkpoint,
    const TransformerConfig& config, const WeightOptions& options = {});

// The same from a model directory.
// Errors: also kNotFound if a file is missing, and as ReadTransformerConfig.
absl::StatusOr<std::shared_ptr<const TransformerWeights>>
LoadTransformerWeights(const std::string& directory,
                       const WeightOptions& options = {});

}  // namespace espalier
