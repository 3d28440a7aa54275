#include "model/transformer_tensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "model/find_layer_tensors.h"
#include "model/find_tensor.h"
#include "model/positions.h"

namespace espalier {
namespace {

using Tensor = TransformerTensor;

// A tensor that is tied to the embedding may be there too, if it is the same.
// transformers uses one that is not, whatever the config says.
absl::Status CheckTied(const Checkpoint& checkpoint, const TensorNames& names,
                       const std::string& name, const Tensor& embedding) {
  const auto head = checkpoint.Find(name);
  if (!head.ok()) return absl::OkStatus();
  const std::span<const std::byte> data = head->tensor->data;
  if (data.size() == embedding.data.size() &&
      std::memcmp(data.data(), embedding.data.data(), data.size()) == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(head->path, ": tensor ", name, " is not ",
                         names.embedding, ".weight, and config.json has ",
                         "tie_word_embeddings true");
}

// True for tensors that are not weights but that some version of transformers
// stores: masks, tables computed from the config, and relative position biases
// of T5's cross-attention, which does not use them.
bool IsNoWeight(std::string_view name, const TransformerConfig& config) {
  if (config.positions == PositionKind::kSinusoidal &&
      name.ends_with(".embed_positions.weight")) {
    return true;
  }
  if (config.positions == PositionKind::kDistances &&
      name.ends_with("EncDecAttention.relative_attention_bias.weight")) {
    return true;
  }
  for (const std::string_view end :
       {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

bool IsOfOtherModel(std::string_view name, const TensorNames& names) {
  return std::ranges::any_of(names.not_of_text, [&](std::string_view begin) {
    return name.starts_with(begin);
  });
}

void AppendNorm(const NormTensors& norm, std::vector<Tensor>* all) {
  all->insert(all->end(), {norm.weight, norm.bias});
}

void AppendLayer(const TransformerLayerTensors& layer,
                 std::vector<Tensor>* all) {
  for (const MatrixPart matrix : kMatrixParts) {
    const MatrixTensors& group = layer[matrix];
    all->insert(all->end(), group.weights.begin(), group.weights.end());
    all->insert(all->end(), group.biases.begin(), group.biases.end());
  }
  for (const NormTensor& norm : kNormTensors) {
    AppendNorm(layer[norm.norm], all);
  }
}

void AppendStack(const TransformerStackTensors& stack,
                 std::vector<Tensor>* all) {
  all->insert(all->end(), {stack.positions, stack.distance_biases});
  AppendNorm(stack.embedding_norm, all);
  AppendNorm(stack.final_norm, all);
  for (const TransformerLayerTensors& layer : stack.layers) {
    AppendLayer(layer, all);
  }
}

// Checks that every weight is used. An unused one, such as a further layer or a
// bias, means that config.json describes another model.
absl::Status CheckAllAreUsed(const Checkpoint& checkpoint,
                             const TransformerConfig& config,
                             const TransformerTensors& tensors) {
  std::set<const std::byte*> used;
  for (const Tensor& tensor : AllTensors(tensors)) {
    used.insert(tensor.data.data());
    used.insert(tensor.fp8_scales.data.data());  // null, if there are none
  }
  const std::string head = Concat(config.names.head, ".weight");
  const auto is_alias = [&](std::string_view name) {
    return std::ranges::any_of(
        config.names.embedding_aliases, [&](std::string_view alias) {
          return name == Concat(config.names.base, alias, ".weight");
        });
  };
  for (const std::string_view name : checkpoint.names()) {
    ASSIGN_OR_RETURN(const LocatedTensor located,
                     checkpoint.Find(std::string(name)));
    const bool is_known = used.contains(located.tensor->data.data()) ||
                          located.tensor->data.empty() || name == head ||
                          is_alias(name) || IsNoWeight(name, config) ||
                          IsOfOtherModel(name, config.names);
    if (is_known) continue;
    return InvalidArgument(located.path, ": tensor ", Shown(name),
                           " is no part of a ", config.family, " model of ",
                           "num_hidden_layers ", config.num_layers(),
                           ", as config.json describes it");
  }
  return absl::OkStatus();
}

// Returns the name of the embedding, or of the tied tensor stored in its place.
std::string EmbeddingName(const Checkpoint& checkpoint,
                          const TensorNames& names, const std::string& base) {
  const std::string name = Concat(base, names.embedding, ".weight");
  if (checkpoint.Find(name).ok()) return name;
  for (const std::string_view alias : names.embedding_aliases) {
    const std::string other = Concat(base, alias, ".weight");
    if (checkpoint.Find(other).ok()) return other;
  }
  return name;
}

// Finds the tensors of an encoder or a decoder.
class StackFinder {
 public:
  StackFinder(const Checkpoint& checkpoint, const TransformerConfig& config,
              std::string base)
      : checkpoint_(checkpoint), config_(config), base_(std::move(base)) {}

  absl::Status Run(const TensorNames& names,
                   const std::vector<LayerConfig>& layers,
                   TransformerStackTensors* stack) {
    const int hidden = config_.hidden_size;
    if (config_.positions == PositionKind::kLearned) {
      // An encoder has as many, though it may read fewer tokens.
      const int num_rows = config_.position_offset + config_.max_context;
      ASSIGN_OR_RETURN(stack->positions,
                       Weight(names.positions, {num_rows, hidden}));
    }
    if (config_.positions == PositionKind::kSinusoidal) {
      ASSIGN_OR_RETURN(stack->positions, StoredPositions(names.positions));
    }
    if (config_.positions == PositionKind::kDistances) {
      ASSIGN_OR_RETURN(
          stack->distance_biases,
          Weight(names.distance_biases,
                 {config_.num_distance_buckets, config_.num_heads}));
    }
    if (config_.has_embedding_norm) {
      ASSIGN_OR_RETURN(stack->embedding_norm, Norm(names.embedding_norm));
    }
    if (!config_.norms_sums) {
      ASSIGN_OR_RETURN(stack->final_norm, Norm(names.final_norm));
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      ASSIGN_OR_RETURN(TransformerLayerTensors layer,
                       FindLayerTensors(checkpoint_, config_, layers[i], names,
                                        Concat(base_, names.layers, i, ".")));
      stack->layers.push_back(std::move(layer));
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<Tensor> Weight(std::string_view name,
                                const std::vector<int64_t>& shape) const {
    return FindTensor(checkpoint_, Concat(base_, name, ".weight"), shape);
  }

  // Positions that are computed may be stored, too, rounded maybe.
  absl::StatusOr<Tensor> StoredPositions(std::string_view name) const {
    const std::string full_name = Concat(base_, name, ".weight");
    const auto located = checkpoint_.Find(full_name);
    if (!located.ok()) return Tensor();
    ASSIGN_OR_RETURN(const Tensor tensor,
                     Weight(name, {config_.max_context, config_.hidden_size}));
    RETURN_IF_ERROR(Annotate(
        CheckSinusoidalPositions(tensor.data, tensor.dtype, config_.max_context,
                                 config_.hidden_size),
        Concat(located->path, ": tensor ", full_name)));
    return tensor;
  }

  absl::StatusOr<NormTensors> Norm(std::string_view name) const {
    NormTensors norm;
    ASSIGN_OR_RETURN(norm.weight, Weight(name, {config_.hidden_size}));
    if (config_.norm != NormKind::kLayer) return norm;
    ASSIGN_OR_RETURN(norm.bias,
                     FindTensor(checkpoint_, Concat(base_, name, ".bias"),
                                {config_.hidden_size}));
    return norm;
  }

  const Checkpoint& checkpoint_;
  const TransformerConfig& config_;
  const std::string base_;
};

// Returns the prefix of all names but the head's in this checkpoint.
std::string_view BaseOf(const Checkpoint& checkpoint,
                        const TensorNames& names) {
  for (const std::string_view base :
       {names.base, names.other_base, std::string_view()}) {
    if (checkpoint.Find(Concat(base, names.embedding, ".weight")).ok()) {
      return base;
    }
  }
  return names.base;
}

}  // namespace

absl::StatusOr<TransformerTensors> FindTransformerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config) {
  const TensorNames& names = config.names;
  const std::vector<int64_t> table = {config.vocab_size,
                                      config.embedding_size()};
  const std::string base(BaseOf(checkpoint, names));
  TransformerTensors tensors;
  const std::string embedding = EmbeddingName(checkpoint, names, base);
  ASSIGN_OR_RETURN(tensors.embedding, FindTensor(checkpoint, embedding, table));
  for (const std::string_view alias : names.embedding_aliases) {
    RETURN_IF_ERROR(CheckTied(checkpoint, names, Concat(base, alias, ".weight"),
                              tensors.embedding));
  }
  const std::string head = Concat(names.head, ".weight");
  const bool lacks_head = config.may_lack_head && !checkpoint.Find(head).ok();
  if (config.tie_word_embeddings) {
    RETURN_IF_ERROR(CheckTied(checkpoint, names, head, tensors.embedding));
  } else if (!lacks_head) {
    ASSIGN_OR_RETURN(tensors.head,
                     FindMatrix(checkpoint, config, head, config.vocab_size,
                                config.embedding_size()));
  }
  if (config.projects_embeddings()) {
    const int size = config.embedding_size();
    ASSIGN_OR_RETURN(
        tensors.project_in,
        FindTensor(checkpoint, Concat(base, names.project_in, ".weight"),
                   {config.hidden_size, size}));
    ASSIGN_OR_RETURN(
        tensors.project_out,
        FindTensor(checkpoint, Concat(base, names.project_out, ".weight"),
                   {size, config.hidden_size}));
  }
  // A missing logits bias is zero, as in transformers.
  const std::string bias(names.logits_bias);
  if (config.has_logits_bias && checkpoint.Find(bias).ok()) {
    ASSIGN_OR_RETURN(tensors.logits_bias,
                     FindTensor(checkpoint, bias, {1, config.vocab_size}));
  }
  StackFinder finder(checkpoint, config, base);
  RETURN_IF_ERROR(finder.Run(names, config.layers, &tensors));
  if (config.encoder) {
    RETURN_IF_ERROR(finder.Run(config.encoder->names, config.encoder->layers,
                               &tensors.encoder));
  }
  RETURN_IF_ERROR(CheckAllAreUsed(checkpoint, config, tensors));
  return tensors;
}

std::vector<TransformerTensor> AllTensors(const TransformerTensors& tensors) {
  std::vector<TransformerTensor> all = {tensors.embedding, tensors.project_in,
                                        tensors.project_out, tensors.head,
                                        tensors.logits_bias};
  AppendStack(tensors, &all);
  AppendStack(tensors.encoder, &all);
  std::erase_if(all, [](const Tensor& tensor) { return tensor.data.empty(); });
  return all;
}

}  // namespace espalier
