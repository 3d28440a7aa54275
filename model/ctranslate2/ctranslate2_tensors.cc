#include "model/ctranslate2/ctranslate2_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "model/tensor_names.h"
#include "model/transformer_parts.h"

namespace espalier {
namespace {

// The first rows of a tensor, or rows in the middle of it.
StoredTensor RowsOf(const StoredTensor& tensor, int64_t first,
                    int64_t num_rows) {
  StoredTensor rows = tensor;
  const size_t row_bytes = tensor.data.size() / tensor.shape[0];
  rows.shape[0] = num_rows;
  rows.data = tensor.data.subspan(first * row_bytes, num_rows * row_bytes);
  return rows;
}

// True if the tensors' numbers are the same bits.
bool AreEqual(const StoredTensor& a, const StoredTensor& b) {
  if (a.dtype != b.dtype || a.data.size() != b.data.size()) return false;
  // Aliases share their data, which would take long to read.
  return a.data.data() == b.data.data() ||
         std::memcmp(a.data.data(), b.data.data(), a.data.size()) == 0;
}

bool AreEqual(const CTranslate2Variables::Matrix& a,
              const CTranslate2Variables::Matrix& b) {
  if (a.scale.has_value() != b.scale.has_value()) return false;
  return AreEqual(a.weight, b.weight) &&
         (!a.scale || AreEqual(*a.scale, *b.scale));
}

class TensorNamer {
 public:
  TensorNamer(CTranslate2Variables& variables, const TransformerSpec& spec,
              const TransformerConfig& config)
      : variables_(variables), spec_(spec), config_(config) {}

  absl::StatusOr<CTranslate2Tensors> Run() {
    RETURN_IF_ERROR(AddStack({config_, /*is_encoder=*/true}, "encoder"));
    RETURN_IF_ERROR(AddStack({config_}, "decoder"));
    RETURN_IF_ERROR(AddEmbeddings());
    RETURN_IF_ERROR(AddHead());
    RETURN_IF_ERROR(variables_.CheckAllAreUsed());
    return std::move(named_);
  }

 private:
  using Matrix = CTranslate2Variables::Matrix;

  std::string NameWithBase(std::string_view name) const {
    return Concat(config_.names.base, name);
  }

  absl::Status AddStack(const TensorOwner& owner, const std::string& scope) {
    const TensorNames& names = owner.names();
    for (size_t i = 0; i < owner.layers().size(); ++i) {
      RETURN_IF_ERROR(AddLayer(owner.OfLayer(static_cast<int>(i)),
                               Concat(scope, "/layer_", i),
                               NameWithBase(Concat(names.layers, i, "."))));
    }
    if (Has(owner, TensorFeature::kFinalNorm)) {
      RETURN_IF_ERROR(
          AddNorm(scope + "/layer_norm", NameWithBase(names.final_norm)));
    }
    if (Has(owner, TensorFeature::kEmbeddingNorm)) {
      RETURN_IF_ERROR(AddNorm(scope + "/layernorm_embedding",
                              NameWithBase(names.embedding_norm)));
    }
    const bool has_convolutions = Has(owner, TensorFeature::kConvolutions);
    if (has_convolutions) {
      RETURN_IF_ERROR(AddConvolution(scope + "/conv1", names.conv1,
                                     config_.encoder->num_mel_bins));
      RETURN_IF_ERROR(
          AddConvolution(scope + "/conv2", names.conv2, config_.hidden_size));
    }
    if (Has(owner, TensorFeature::kLearnedPositions)) {
      const std::string name = scope + "/position_encodings/encodings";
      ASSIGN_OR_RETURN(const StoredTensor* const table, variables_.Any(name));
      Put(NameWithBase(names.positions) + ".weight",
          RowsOf(*table, 0,
                 has_convolutions ? config_.encoder->max_tokens
                                  : config_.max_context));
    }
    if (Has(owner, TensorFeature::kDistanceBiases)) {
      RETURN_IF_ERROR(AddDistanceBiases(owner,
                                        BiasOf(Concat(scope, "/layer_0")),
                                        NameWithBase(names.distance_biases)));
    }
    return absl::OkStatus();
  }

  static std::string BiasOf(const std::string& layer) {
    return layer + "/self_attention/relative_attention_bias";
  }

  absl::Status AddLayer(const TensorOwner& owner, const std::string& scope,
                        const std::string& prefix) {
    const TensorNames& names = owner.names();
    const auto add = [&](std::string_view part,
                         std::initializer_list<std::string_view> to,
                         TensorDim rows, TensorDim cols, bool has_bias) {
      std::vector<std::string> whole;
      for (const std::string_view name : to) {
        whole.push_back(Concat(prefix, name));
      }
      return AddMatrix(Concat(scope, "/", part), whole, SizeOf(owner, rows),
                       SizeOf(owner, cols), has_bias);
    };
    using enum TensorDim;
    const bool has_qkv_bias = config_.has_qkv_bias;
    const bool has_output_bias = config_.has_output_bias;
    const bool has_mlp_bias = config_.has_mlp_bias;
    RETURN_IF_ERROR(AddNorm(scope + "/self_attention/layer_norm",
                            Concat(prefix, names.attention_norm)));
    RETURN_IF_ERROR(add("self_attention/linear_0", {names.q, names.k, names.v},
                        kQueries, kHidden, has_qkv_bias));
    RETURN_IF_ERROR(add("self_attention/linear_1", {names.output}, kHidden,
                        kQueries, has_output_bias));
    if (Has(owner, TensorFeature::kCrossAttention)) {
      RETURN_IF_ERROR(AddNorm(scope + "/attention/layer_norm",
                              Concat(prefix, names.cross_norm)));
      RETURN_IF_ERROR(add("attention/linear_0", {names.cross_q}, kQueries,
                          kHidden, has_qkv_bias));
      RETURN_IF_ERROR(add("attention/linear_1", {names.cross_k, names.cross_v},
                          kKeys, kHidden, has_qkv_bias));
      RETURN_IF_ERROR(add("attention/linear_2", {names.cross_output}, kHidden,
                          kQueries, has_output_bias));
    }
    RETURN_IF_ERROR(
        AddNorm(scope + "/ffn/layer_norm", Concat(prefix, names.mlp_norm)));
    if (config_.has_gate) {
      RETURN_IF_ERROR(add("ffn/linear_0", {names.gate}, kIntermediate, kHidden,
                          has_mlp_bias));
      RETURN_IF_ERROR(add("ffn/linear_0_noact", {names.up}, kIntermediate,
                          kHidden, has_mlp_bias));
    } else {
      RETURN_IF_ERROR(add("ffn/linear_0", {names.up}, kIntermediate, kHidden,
                          has_mlp_bias));
    }
    RETURN_IF_ERROR(add("ffn/linear_1", {names.down}, kHidden, kIntermediate,
                        has_mlp_bias));
    if (config_.positions != PositionKind::kDistances) return absl::OkStatus();
    if (config_.has_layer_distances) {
      return AddDistanceBiases(owner, BiasOf(scope),
                               Concat(prefix, names.distance_biases));
    }
    // Equal to the first layer's.
    return variables_.Any(BiasOf(scope)).status();
  }

  absl::Status AddDistanceBiases(const TensorOwner& owner,
                                 const std::string& name,
                                 const std::string& to) {
    ASSIGN_OR_RETURN(
        StoredTensor biases,
        variables_.Floats(name, {SizeOf(owner, TensorDim::kDistanceBuckets),
                                 SizeOf(owner, TensorDim::kHeads)}));
    Put(to + ".weight", std::move(biases));
    return absl::OkStatus();
  }

  absl::Status AddNorm(const std::string& scope, const std::string& to) {
    const std::vector<int64_t> shape = {config_.hidden_size};
    ASSIGN_OR_RETURN(StoredTensor gamma,
                     variables_.Floats(scope + "/gamma", shape));
    Put(to + ".weight", std::move(gamma));
    if (config_.norm != NormKind::kLayer) return absl::OkStatus();
    ASSIGN_OR_RETURN(StoredTensor beta,
                     variables_.Floats(scope + "/beta", shape));
    Put(to + ".bias", std::move(beta));
    return absl::OkStatus();
  }

  // Adds the matrices, of `num_rows` rows each, that are stored as one.
  absl::Status AddMatrix(const std::string& scope,
                         const std::vector<std::string>& to, int64_t num_rows,
                         int64_t num_cols, bool has_bias) {
    const int64_t all_rows = num_rows * std::ssize(to);
    ASSIGN_OR_RETURN(
        const Matrix matrix,
        variables_.MatrixOf(scope + "/weight", {all_rows, num_cols}));
    std::optional<StoredTensor> bias;
    if (has_bias) {
      ASSIGN_OR_RETURN(bias, variables_.Floats(scope + "/bias", {all_rows}));
    }
    for (size_t i = 0; i < to.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * num_rows;
      PutMatrix(to[i] + ".weight", RowsOf(matrix.weight, first, num_rows),
                matrix.scale
                    ? std::optional(RowsOf(*matrix.scale, first, num_rows))
                    : std::nullopt);
      if (bias) Put(to[i] + ".bias", RowsOf(*bias, first, num_rows));
    }
    return absl::OkStatus();
  }

  absl::Status AddConvolution(const std::string& scope, std::string_view to,
                              int64_t num_channels) {
    const int64_t num_rows = config_.hidden_size;
    ASSIGN_OR_RETURN(Matrix matrix,
                     variables_.MatrixOf(scope + "/weight",
                                         {num_rows, num_channels, kNumTaps}));
    ASSIGN_OR_RETURN(StoredTensor bias,
                     variables_.Floats(scope + "/bias", {num_rows}));
    const std::string name = NameWithBase(to);
    PutMatrix(name + ".weight", std::move(matrix.weight),
              std::move(matrix.scale));
    Put(name + ".bias", std::move(bias));
    return absl::OkStatus();
  }

  absl::Status AddEmbeddings() {
    const std::string source = "encoder/embeddings_0/weight";
    const std::string target = "decoder/embeddings/weight";
    ASSIGN_OR_RETURN(const Matrix matrix, VocabularyMatrix(target));
    if (!config_.encoder->feature_shape()) {
      ASSIGN_OR_RETURN(const Matrix same, VocabularyMatrix(source));
      if (!AreEqual(matrix, same)) {
        return InvalidArgument("variable ", source, " must be ", target,
                               ": embeddings of the source other than those "
                               "of the target are not supported");
      }
    }
    return PutVocabularyMatrix(
        NameWithBase(config_.names.embedding) + ".weight", matrix);
  }

  absl::Status AddHead() {
    const std::string name = "decoder/projection/weight";
    ASSIGN_OR_RETURN(const Matrix head, VocabularyMatrix(name));
    const bool is_tied =
        head.weight.data.data() ==
        variables_.file().Find("decoder/embeddings/weight")->data.data();
    if (!is_tied) {
      RETURN_IF_ERROR(
          PutVocabularyMatrix(Concat(config_.names.head, ".weight"), head));
    }
    if (!config_.has_logits_bias) return absl::OkStatus();
    return AddLogitsBias();
  }

  absl::Status AddLogitsBias() {
    const std::string name = "decoder/projection/bias";
    const int64_t num_stored = NumStoredTokens();
    StoredTensor bias = {"F32", {1, config_.vocab_size}, {}};
    std::vector<float> zeros;
    std::span<const std::byte> stored;
    if (variables_.Has(name)) {
      ASSIGN_OR_RETURN(const StoredTensor from,
                       variables_.Floats(name, {num_stored}));
      bias.dtype = from.dtype;
      stored = from.data;
    } else {
      zeros.resize(num_stored);
      stored = std::as_bytes(std::span(zeros));
    }
    if (!spec_.starts_from_zero) {
      bias.data = stored;
      Put(std::string(config_.names.logits_bias), bias);
      return absl::OkStatus();
    }
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    constexpr uint16_t kNeverF16 = 0xFC00, kNeverBf16 = 0xFF80;
    const std::span<const std::byte> last =
        bias.dtype == "F32"   ? std::as_bytes(std::span(&kNever, 1))
        : bias.dtype == "F16" ? std::as_bytes(std::span(&kNeverF16, 1))
                              : std::as_bytes(std::span(&kNeverBf16, 1));
    ASSIGN_OR_RETURN(bias.data, Join(stored, last));
    Put(std::string(config_.names.logits_bias), bias);
    return absl::OkStatus();
  }

  int64_t NumStoredTokens() const {
    return config_.vocab_size - (spec_.starts_from_zero ? 1 : 0);
  }

  absl::StatusOr<Matrix> VocabularyMatrix(const std::string& name) {
    return variables_.MatrixOf(name, {NumStoredTokens(), config_.hidden_size});
  }

  // With a row of zeros at its end, if the decoder begins with that.
  absl::Status PutVocabularyMatrix(const std::string& to, Matrix matrix) {
    if (spec_.starts_from_zero) {
      StoredTensor& weight = matrix.weight;
      const std::vector<std::byte> zeros(weight.data.size() / weight.shape[0]);
      ASSIGN_OR_RETURN(weight.data, Join(weight.data, zeros));
      ++weight.shape[0];
      if (matrix.scale) {
        constexpr float kOne = 1;
        ASSIGN_OR_RETURN(
            matrix.scale->data,
            Join(matrix.scale->data, std::as_bytes(std::span(&kOne, 1))));
        ++matrix.scale->shape[0];
      }
    }
    PutMatrix(to, std::move(matrix.weight), std::move(matrix.scale));
    return absl::OkStatus();
  }

  absl::StatusOr<std::span<const std::byte>> Join(
      std::span<const std::byte> first, std::span<const std::byte> second) {
    const std::span<const std::byte> parts[] = {first, second};
    ASSIGN_OR_RETURN(SharedBytes copy, SharedBytes::CopyOf(parts));
    named_.copies.push_back(std::move(copy));
    return named_.copies.back().bytes();
  }

  void PutMatrix(const std::string& name, StoredTensor weight,
                 std::optional<StoredTensor> scale) {
    if (scale) Put(name + "_scale", *std::move(scale));
    Put(name, std::move(weight));
  }
  void Put(std::string name, StoredTensor tensor) {
    named_.tensors.insert_or_assign(std::move(name), std::move(tensor));
  }

  CTranslate2Variables& variables_;
  const TransformerSpec& spec_;
  const TransformerConfig& config_;
  CTranslate2Tensors named_;
};

}  // namespace

absl::StatusOr<CTranslate2Tensors> NameCTranslate2Tensors(
    CTranslate2Variables& variables, const TransformerSpec& spec,
    const TransformerConfig& config) {
  return TensorNamer(variables, spec, config).Run();
}

}  // namespace espalier
