// TransformerWeights: a transformer's config and weights, without a KV cache.
// Models with caches of their own share them. The weights are packed for its
// forward pass: q, k, v of a layer as one matrix, gate and up as one. Matrices
// keep bf16 and f16, or are quantised; norms and biases are widened to float32.
// Embeddings stay in the checkpoint's files, which are mapped as long as the
// weights live: the files may be removed or replaced, but not modified or
// truncated.
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
#include "model/load_progress.h"
#include "model/transformer_config.h"
#include "model/transformer_parts.h"

namespace espalier {

// Empty if the model has no such norm.
struct NormWeights {
  std::vector<float> weight;  // includes the 1 of norm_adds_one
  std::vector<float> bias;    // NormKind::kLayer only
};

struct ProductWeights {
  PackedMatrix matrix;      // [outputs, inputs]
  std::vector<float> bias;  // [outputs]
};

using WeightParts =
    TransformerParts<NormWeights, ProductWeights, EmbeddingTable>;

// An encoder, or a decoder, and its weights outside of layers. The head is
// there also if tied, and its bias is that of the logits. Positions are empty
// if they are sinusoidal and not stored.
struct TransformerStackWeights : WeightParts {
  // Returns those of a layer, as AttentionOptions::biases; null: none.
  const float* distance_biases_of(size_t layer) const {
    if (distance_biases.empty()) return nullptr;
    return distance_biases[distance_biases.size() == 1 ? 0 : layer].data();
  }

  // One for all layers, or one a layer (has_layer_distances), or none.
  std::vector<std::vector<float>> distance_biases;
  std::vector<WeightParts> layers;
};

struct TransformerWeights : TransformerStackWeights {
  TransformerConfig config;
  WeightFormat format = WeightFormat::kAsStored;
  std::shared_ptr<const Checkpoint> checkpoint;  // owns embeddings
  TransformerStackWeights encoder;  // without layers in a decoder-only model
};

struct WeightOptions {
  // Format of the layers' matrices and the head; the head is kInt8 with kInt4
  // layers, and kAsStored with kFp8 layers.
  WeightFormat format = WeightFormat::kAsStored;
  ThreadPool* pool = nullptr;  // null: the caller's thread alone
  LoadProgress progress = nullptr;
};

// Finds and checks the tensors (transformer_tensors.h) and packs them.
//
// Allocates as many bytes as the tensors other than embeddings have in the
// files. 16-bit norms and biases, and 16-bit matrices that are stacked with
// ones of another type, become f32 and take twice their bytes. Packing rounds
// rows up to a multiple of 32, and quantisation rounds columns up to whole
// groups, which is negligible in real models. A damaged file can make it
// allocate at most 64 times the file's size, 160 times if quantised.
//
// Errors: as FindTransformerTensors, and ReadFp8Row (fp8_rows.h) with matrices
// of e4m3; kResourceExhausted if memory runs out.
absl::StatusOr<TransformerWeights> LoadTransformerWeights(
    std::shared_ptr<const Checkpoint> checkpoint,
    const TransformerConfig& config, const WeightOptions& options = {});

// Loads weights from a model directory.
// Errors: also kNotFound if a file is missing, and as ReadTransformerConfig.
absl::StatusOr<std::shared_ptr<const TransformerWeights>>
LoadTransformerWeights(const std::string& directory,
                       const WeightOptions& options = {});

}  // namespace espalier
