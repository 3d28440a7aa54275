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
#include "model/find_tensor.h"
#include "model/find_tensor_parts.h"
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
      name.ends_with(config.sinusoids == SinusoidKind::kVaswani
                         ? ".embed_positions.weight"
                         : ".embed_positions.weights")) {
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

void AppendParts(const TensorParts& parts, std::vector<Tensor>* all) {
  for (const TableTensor& table : kTableTensors) {
    all->push_back(parts[table.table]);
  }
  for (const MatrixPart matrix : kMatrixParts) {
    const MatrixTensors& group = parts[matrix];
    all->insert(all->end(), group.weights.begin(), group.weights.end());
    all->insert(all->end(), group.biases.begin(), group.biases.end());
  }
  for (const NormTensor& norm : kNormTensors) {
    all->insert(all->end(), {parts[norm.norm].weight, parts[norm.norm].bias});
  }
}

void AppendStack(const TransformerStackTensors& stack,
                 std::vector<Tensor>* all) {
  AppendParts(stack, all);
  for (const TensorParts& layer : stack.layers) AppendParts(layer, all);
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
    used.insert(tensor.int8_scales.data());
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

// Positions that are computed may be stored, too, rounded maybe.
absl::StatusOr<Tensor> FindSinusoidalPositions(const Checkpoint& checkpoint,
                                               const TransformerConfig& config,
                                               const std::string& name) {
  const auto located = checkpoint.Find(name);
  if (!located.ok()) return Tensor();
  ASSIGN_OR_RETURN(
      const Tensor tensor,
      FindTensor(checkpoint, name, {config.max_context, config.hidden_size}));
  RETURN_IF_ERROR(
      Annotate(CheckSinusoidalPositions(tensor.data, tensor.dtype,
                                        config.max_context, config.hidden_size),
               Concat(located->path, ": tensor ", name)));
  return tensor;
}

// Finds the tensors of an encoder or a decoder.
absl::Status FindStack(const Checkpoint& checkpoint, const TensorOwner& owner,
                       const std::string& base,
                       TransformerStackTensors* stack) {
  ASSIGN_OR_RETURN(static_cast<TensorParts&>(*stack),
                   FindTensorParts(checkpoint, owner, base));
  if (owner.config.positions == PositionKind::kSinusoidal &&
      owner.config.sinusoids == SinusoidKind::kVaswani) {
    ASSIGN_OR_RETURN((*stack)[TablePart::kPositions],
                     FindSinusoidalPositions(
                         checkpoint, owner.config,
                         Concat(base, owner.names().positions, ".weight")));
  }
  for (size_t i = 0; i < owner.layers().size(); ++i) {
    ASSIGN_OR_RETURN(
        TensorParts layer,
        FindTensorParts(checkpoint, owner.OfLayer(i),
                        Concat(base, owner.names().layers, i, ".")));
    stack->layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

// Finds the embedding and checks tensors that are tied to it.
absl::StatusOr<Tensor> FindEmbedding(const Checkpoint& checkpoint,
                                     const TransformerConfig& config,
                                     const std::string& base) {
  const TensorNames& names = config.names;
  ASSIGN_OR_RETURN(
      Tensor embedding,
      FindTable(checkpoint, config, EmbeddingName(checkpoint, names, base),
                {config.vocab_size, config.embedding_size()}));
  for (const std::string_view alias : names.embedding_aliases) {
    RETURN_IF_ERROR(CheckTied(checkpoint, names, Concat(base, alias, ".weight"),
                              embedding));
  }
  return embedding;
}

// Finds the head, unless it is the embedding, and the bias of the logits.
absl::StatusOr<MatrixTensors> FindHead(const Checkpoint& checkpoint,
                                       const TransformerConfig& config,
                                       const Tensor& embedding) {
  MatrixTensors head;
  const std::string name = Concat(config.names.head, ".weight");
  const bool lacks_head = config.may_lack_head && !checkpoint.Find(name).ok();
  if (config.tie_word_embeddings) {
    RETURN_IF_ERROR(CheckTied(checkpoint, config.names, name, embedding));
  } else if (!lacks_head) {
    ASSIGN_OR_RETURN(Tensor weight,
                     FindMatrix(checkpoint, config, name, config.vocab_size,
                                config.embedding_size()));
    head.weights = {std::move(weight)};
  }
  // A missing bias is zero, as in transformers.
  const std::string bias_name(config.names.logits_bias);
  if (config.has_logits_bias && checkpoint.Find(bias_name).ok()) {
    ASSIGN_OR_RETURN(Tensor bias,
                     FindTensor(checkpoint, bias_name, {1, config.vocab_size}));
    bias.num_rows = config.vocab_size;
    head.biases = {std::move(bias)};
  }
  return head;
}

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
  const std::string base(BaseOf(checkpoint, config.names));
  ASSIGN_OR_RETURN(Tensor embedding, FindEmbedding(checkpoint, config, base));
  ASSIGN_OR_RETURN(MatrixTensors head, FindHead(checkpoint, config, embedding));
  TransformerTensors tensors;
  RETURN_IF_ERROR(FindStack(checkpoint, {config}, base, &tensors));
  tensors[TablePart::kEmbedding] = std::move(embedding);
  tensors[MatrixPart::kHead] = std::move(head);
  if (config.encoder) {
    RETURN_IF_ERROR(FindStack(checkpoint, {config, /*is_encoder=*/true}, base,
                              &tensors.encoder));
  }
  RETURN_IF_ERROR(CheckAllAreUsed(checkpoint, config, tensors));
  return tensors;
}

std::vector<TransformerTensor> AllTensors(const TransformerTensors& tensors) {
  std::vector<TransformerTensor> all;
  AppendStack(tensors, &all);
  AppendStack(tensors.encoder, &all);
  std::erase_if(all, [](const Tensor& tensor) { return tensor.data.empty(); });
  return all;
}

}  // namespace espalier
