#include "model/ctranslate2/transformer_spec.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <vector>

#include "base/load_as_float.h"
#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"
#include "model/positions.h"

namespace espalier {
namespace {

constexpr std::string_view kTransformer = "TransformerSpec";
constexpr std::string_view kWhisper = "WhisperSpec";
constexpr int kMaxRevision = 7, kMaxWhisperRevision = 3;

// CTranslate2's numbers of activations, as transformers names them, and the
// same with a gate as T5 names it.
struct ActivationName {
  std::string_view name;
  std::string_view gated = "";
};
constexpr ActivationName kActivations[] = {
    {"relu"}, {"gelu_new", "gated-gelu"}, {"silu", "gated-silu"}, {"gelu"}};
constexpr int kGelu = 3;

// An encoder or a decoder.
struct Stack {
  std::string scope;  // "encoder"
  int num_layers = 0;
  int num_heads = 0;
  int intermediate_size = 0;
  bool is_pre_norm = false;
  bool has_embedding_norm = false;
  bool has_gate = false;
  bool scales_embeddings = false;
  int activation = 0;  // in kActivations
};

class SpecReader {
 public:
  SpecReader(CTranslate2Variables& variables, const json::object& options,
             const CTranslate2Vocabulary& vocabulary)
      : variables_(variables), options_(options), vocabulary_(vocabulary) {
    spec_.is_whisper = IsWhisperSpec(variables.file());
  }

  absl::StatusOr<TransformerSpec> Run() {
    RETURN_IF_ERROR(ReadSizes());
    ASSIGN_OR_RETURN(encoder_, ReadStack("encoder"));
    ASSIGN_OR_RETURN(decoder_, ReadStack("decoder"));
    RETURN_IF_ERROR(CheckStacksAgree());
    RETURN_IF_ERROR(ReadFlags());
    RETURN_IF_ERROR(ReadOptions());
    const bool has_distances = variables_.Has(BiasOf("encoder", 0));
    RETURN_IF_ERROR(spec_.is_whisper ? DescribeWhisper()
                    : has_distances  ? DescribeT5()
                                     : DescribeBart());
    RETURN_IF_ERROR(ReadTokens());
    return std::move(spec_);
  }

 private:
  static std::string BiasOf(std::string_view scope, int layer) {
    return Concat(scope, "/layer_", layer,
                  "/self_attention/relative_attention_bias");
  }

  // Rows and columns of a matrix.
  absl::StatusOr<std::vector<int64_t>> ShapeOf(const std::string& name) {
    ASSIGN_OR_RETURN(const StoredTensor* const tensor, variables_.Any(name));
    if (tensor->shape.size() == 2) return tensor->shape;
    return InvalidArgument("variable ", name, " must be a matrix, got ",
                           tensor->shape.size(), " dimensions");
  }

  absl::Status ReadSizes() {
    constexpr char kEmbedding[] = "decoder/embeddings/weight";
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, ShapeOf(kEmbedding));
    if (shape[0] != std::ssize(vocabulary_.tokens)) {
      return InvalidArgument("variable ", kEmbedding, " has ", shape[0],
                             " rows, ", vocabulary_.path, " has ",
                             vocabulary_.tokens.size(), " tokens");
    }
    if (shape[0] >= kMaxVocabulary || shape[1] > kMaxWidth) {
      return InvalidArgument("variable ", kEmbedding, " must be less than [",
                             kMaxVocabulary, ", ", kMaxWidth, "], got [",
                             shape[0], ", ", shape[1], "]");
    }
    hidden_size_ = static_cast<int>(shape[1]);
    return absl::OkStatus();
  }

  absl::StatusOr<int> Integer(const std::string& name, int low, int high) {
    ASSIGN_OR_RETURN(const double number, variables_.Number(name));
    if (number >= low && number <= high && number == std::floor(number)) {
      return static_cast<int>(number);
    }
    return InvalidArgument("variable ", name, " must be an integer in [", low,
                           ", ", high, "], got ", number);
  }

  absl::StatusOr<bool> Flag(const std::string& name) {
    ASSIGN_OR_RETURN(const int value, Integer(name, 0, 1));
    return value == 1;
  }

  absl::StatusOr<bool> ScalesEmbeddings(const std::string& name) {
    ASSIGN_OR_RETURN(const StoredTensor* const tensor, variables_.Any(name));
    ASSIGN_OR_RETURN(const double scale, variables_.Number(name));
    const double root = std::sqrt(static_cast<double>(hidden_size_));
    if (tensor->dtype == "I8") return scale != 0;
    if (scale == 1) return false;
    if (std::abs(scale - root) <= 1e-6 * root) return true;
    return InvalidArgument("variable ", name, " must be 1 or the root of ",
                           hidden_size_, ", got ", scale);
  }

  // True if a variable's name begins with `prefix`.
  bool HasAnyOf(const std::string& prefix) const {
    const auto& variables = variables_.file().variables();
    const auto first = variables.lower_bound(prefix);
    return first != variables.end() && first->first.starts_with(prefix);
  }

  absl::StatusOr<Stack> ReadStack(const std::string& scope) {
    Stack stack = {.scope = scope};
    const auto layer = [&](int i) { return Concat(scope, "/layer_", i); };
    while (stack.num_layers < kMaxLayers &&
           HasAnyOf(layer(stack.num_layers) + "/")) {
      ++stack.num_layers;
    }
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape,
                     ShapeOf(layer(0) + "/ffn/linear_0/weight"));
    stack.intermediate_size = static_cast<int>(shape[0]);
    ASSIGN_OR_RETURN(stack.num_heads,
                     Integer(scope + "/num_heads", 1, kMaxHeads));
    if (spec_.is_whisper && scope == "encoder") {
      stack.is_pre_norm = true;
      stack.activation = kGelu;
      return stack;
    }
    ASSIGN_OR_RETURN(stack.is_pre_norm, Flag(scope + "/pre_norm"));
    ASSIGN_OR_RETURN(stack.activation,
                     Integer(scope + "/activation", 0,
                             static_cast<int>(std::size(kActivations)) - 1));
    ASSIGN_OR_RETURN(stack.scales_embeddings,
                     ScalesEmbeddings(scope + "/scale_embeddings"));
    stack.has_embedding_norm =
        variables_.Has(scope + "/layernorm_embedding/gamma");
    stack.has_gate = variables_.Has(layer(0) + "/ffn/linear_0_noact/weight");
    return stack;
  }

  absl::Status CheckStacksAgree() const {
    const auto differ = [this](std::string_view what) {
      if (spec_.is_whisper && what != "num_heads") {
        return InvalidArgument("variable decoder/", what,
                               " is not that of Whisper");
      }
      return InvalidArgument("encoder/", what, " and decoder/", what,
                             " must agree");
    };
    if (encoder_.num_heads != decoder_.num_heads) return differ("num_heads");
    if (encoder_.is_pre_norm != decoder_.is_pre_norm) return differ("pre_norm");
    if (encoder_.activation != decoder_.activation) return differ("activation");
    if (encoder_.scales_embeddings != decoder_.scales_embeddings) {
      return differ("scale_embeddings");
    }
    if (encoder_.has_embedding_norm != decoder_.has_embedding_norm) {
      return differ("layernorm_embedding/gamma");
    }
    if (encoder_.has_gate != decoder_.has_gate) {
      return differ("layer_0/ffn/linear_0_noact/weight");
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlags() {
    // A merge of several embeddings, of which there is one, and attention
    // that is reported.
    for (const char* const name :
         {"encoder/embeddings_merge", "decoder/alignment_layer",
          "decoder/alignment_heads", "decoder/alibi_use_positive_positions",
          "decoder/scale_alibi"}) {
      RETURN_IF_ERROR(variables_.NumberIfThere(name).status());
    }
    for (const char* const name :
         {"decoder/alibi", "encoder/multi_query_attention"}) {
      if (!variables_.Has(name)) continue;
      ASSIGN_OR_RETURN(const bool is_set, Flag(name));
      if (!is_set) continue;
      return InvalidArgument("variable ", name, " 1 is not supported");
    }
    if (variables_.Has("decoder/start_from_zero_embedding")) {
      ASSIGN_OR_RETURN(spec_.starts_from_zero,
                       Flag("decoder/start_from_zero_embedding"));
    }
    spec_.has_logits_bias =
        variables_.Has("decoder/projection/bias") || spec_.starts_from_zero;
    return absl::OkStatus();
  }

  absl::Status ReadOptions() {
    ASSIGN_OR_RETURN(const bool is_multi_query,
                     ReadBool(options_, "multi_query_attention", false));
    if (is_multi_query) {
      return InvalidArgument("multi_query_attention true is not supported");
    }
    if (const json::value* const type =
            FindField(options_, "quantization_type")) {
      return InvalidArgument("quantization_type ", Shown(type),
                             " is not supported");
    }
    if (FindField(options_, "layer_norm_epsilon") == nullptr) {
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(spec_.norm_eps,
                     ReadNumber(options_, "layer_norm_epsilon", 0, 1));
    return absl::OkStatus();
  }

  // Checks scales of scores: `expected` in all layers, or none at all.
  absl::Status CheckScoreScales(std::optional<double> expected) {
    for (const Stack* const stack : {&encoder_, &decoder_}) {
      for (int i = 0; i < stack->num_layers; ++i) {
        for (const char* const part : {"self_attention", "attention"}) {
          const std::string name =
              Concat(stack->scope, "/layer_", i, "/", part, "/queries_scale");
          ASSIGN_OR_RETURN(const std::optional<double> scale,
                           variables_.NumberIfThere(name));
          const bool is_there = stack == &decoder_ || part[0] == 's';
          if (!is_there || scale == expected) continue;
          return InvalidArgument("variable ", name, " must be ",
                                 expected ? Concat(*expected) : "missing",
                                 ", got ", scale ? Concat(*scale) : "none");
        }
      }
    }
    return absl::OkStatus();
  }

  void SetFamily(std::string_view model_type) {
    for (const ModelFamily* const family : ModelFamilies()) {
      if (family->model_type != model_type) continue;
      spec_.config["model_type"] = json::string_view(family->model_type);
      spec_.config["architectures"] =
          json::array{json::string_view(family->architecture)};
    }
  }

  int vocab_size() const {
    return static_cast<int>(vocabulary_.tokens.size()) +
           (spec_.starts_from_zero ? 1 : 0);
  }

  // True if the head is an alias of the embedding.
  bool IsTied() const {
    const CTranslate2File& file = variables_.file();
    const StoredTensor* const head = file.Find("decoder/projection/weight");
    const StoredTensor* const table = file.Find("decoder/embeddings/weight");
    return head != nullptr && head->data.data() == table->data.data();
  }

  absl::Status DescribeT5() {
    const std::string first = BiasOf("encoder", 0);
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, ShapeOf(first));
    ASSIGN_OR_RETURN(const int max_distance, ReadMaxDistance());
    RETURN_IF_ERROR(CheckScoreScales(1.0));
    if (!encoder_.is_pre_norm || encoder_.has_embedding_norm ||
        spec_.starts_from_zero) {
      return InvalidArgument("variable ", first, " is of T5, which has ",
                             "pre_norm 1, no layernorm_embedding and ",
                             "start_from_zero_embedding 0");
    }
    if (encoder_.intermediate_size != decoder_.intermediate_size) {
      return InvalidArgument(
          "variable decoder/layer_0/ffn/linear_0/weight must have ",
          encoder_.intermediate_size, " rows, as encoder/'s, got ",
          decoder_.intermediate_size);
    }
    const ActivationName& activation = kActivations[encoder_.activation];
    const std::string_view form =
        encoder_.has_gate ? activation.gated : activation.name;
    if (form.empty()) {
      return InvalidArgument("variable encoder/activation ",
                             encoder_.activation,
                             " with a gate (linear_0_noact) is not supported");
    }
    ASSIGN_OR_RETURN(const std::vector<int64_t> queries,
                     ShapeOf("decoder/layer_0/attention/linear_0/weight"));
    ASSIGN_OR_RETURN(const bool scales_head, ScalesHead());
    SetFamily(HasBiasesOfLayers() ? "umt5" : "t5");
    const json::object fields = {
        {"vocab_size", vocab_size()},
        {"d_model", hidden_size_},
        {"d_kv", queries[0] / encoder_.num_heads},
        {"d_ff", encoder_.intermediate_size},
        {"num_heads", encoder_.num_heads},
        {"num_layers", encoder_.num_layers},
        {"num_decoder_layers", decoder_.num_layers},
        {"relative_attention_num_buckets", shape[0]},
        {"relative_attention_max_distance", max_distance},
        {"feed_forward_proj", json::string_view(form)},
        {"scale_decoder_outputs", scales_head}};
    spec_.config.insert(fields.begin(), fields.end());
    return absl::OkStatus();
  }

  // That of all layers.
  absl::StatusOr<int> ReadMaxDistance() {
    std::optional<int> distance;
    for (const Stack* const stack : {&encoder_, &decoder_}) {
      for (int i = 0; i < stack->num_layers; ++i) {
        const std::string name =
            Concat(stack->scope, "/layer_", i,
                   "/self_attention/relative_attention_max_distance");
        ASSIGN_OR_RETURN(const int value, Integer(name, 1, kMaxContext));
        if (!distance) distance = value;
        if (*distance == value) continue;
        return InvalidArgument("variable ", name, " must be ", *distance,
                               ", as that of encoder/layer_0, got ", value);
      }
    }
    return *distance;
  }

  // False if the layers share those of their stack's first.
  bool HasBiasesOfLayers() const {
    const CTranslate2File& file = variables_.file();
    for (const Stack* const stack : {&encoder_, &decoder_}) {
      const StoredTensor* const first = file.Find(BiasOf(stack->scope, 0));
      for (int i = 1; i < stack->num_layers; ++i) {
        const StoredTensor* const bias = file.Find(BiasOf(stack->scope, i));
        if (first == nullptr || bias == nullptr) continue;
        if (!std::ranges::equal(first->data, bias->data)) return true;
      }
    }
    return false;
  }

  absl::StatusOr<bool> ScalesHead() {
    constexpr char kName[] = "decoder/scale_outputs";
    ASSIGN_OR_RETURN(const std::optional<double> scale,
                     variables_.NumberIfThere(kName));
    if (!scale || *scale == 1) return false;
    const double expected = 1 / std::sqrt(static_cast<double>(hidden_size_));
    if (std::abs(*scale - expected) <= 1e-6 * expected) return true;
    return InvalidArgument("variable ", kName, " must be 1 or 1 / the root of ",
                           hidden_size_, ", got ", *scale);
  }

  absl::Status DescribeBart() {
    RETURN_IF_ERROR(CheckScoreScales(std::nullopt));
    ASSIGN_OR_RETURN(const int num_sources, NumPositions("encoder"));
    ASSIGN_OR_RETURN(const int num_targets, NumPositions("decoder"));
    spec_.num_positions = std::min(num_sources, num_targets);
    if (encoder_.has_gate) {
      return InvalidArgument(
          "variable encoder/layer_0/ffn/linear_0_noact/weight, a gate, is ",
          "not supported without relative_attention_bias");
    }
    const std::string_view model_type = ModelType();
    SetFamily(model_type);
    SetFieldsOfBart();
    spec_.config["max_position_embeddings"] = spec_.num_positions;
    return absl::OkStatus();
  }

  absl::Status DescribeWhisper() {
    RETURN_IF_ERROR(CheckScoreScales(std::nullopt));
    if (spec_.has_logits_bias) {
      return InvalidArgument("variable decoder/",
                             spec_.starts_from_zero
                                 ? "start_from_zero_embedding"
                                 : "projection/bias",
                             " is not that of Whisper");
    }
    constexpr char kConvolution[] = "encoder/conv1/weight";
    ASSIGN_OR_RETURN(const StoredTensor* const convolution,
                     variables_.Any(kConvolution));
    if (convolution->shape.size() != 3) {
      return InvalidArgument("variable ", kConvolution,
                             " must have 3 dimensions, got ",
                             convolution->shape.size());
    }
    ASSIGN_OR_RETURN(const int num_frames, NumPositions("encoder"));
    ASSIGN_OR_RETURN(const int num_positions, NumPositions("decoder"));
    SetFamily("whisper");
    SetFieldsOfBart();
    spec_.config["num_mel_bins"] = convolution->shape[1];
    spec_.config["max_source_positions"] = num_frames;
    spec_.config["max_target_positions"] = num_positions;
    return absl::OkStatus();
  }

  void SetFieldsOfBart() {
    const json::object fields = {
        {"vocab_size", vocab_size()},
        {"d_model", hidden_size_},
        {"encoder_layers", encoder_.num_layers},
        {"decoder_layers", decoder_.num_layers},
        {"encoder_attention_heads", encoder_.num_heads},
        {"decoder_attention_heads", decoder_.num_heads},
        {"encoder_ffn_dim", encoder_.intermediate_size},
        {"decoder_ffn_dim", decoder_.intermediate_size},
        {"activation_function",
         json::string_view(kActivations[encoder_.activation].name)},
        {"scale_embedding", encoder_.scales_embeddings},
        {"tie_word_embeddings", IsTied()}};
    spec_.config.insert(fields.begin(), fields.end());
  }

  // Rows of a stack's positions, at most as many as there may be.
  absl::StatusOr<int> NumPositions(std::string_view scope) {
    const std::string name = Concat(scope, "/position_encodings/encodings");
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, ShapeOf(name));
    ASSIGN_OR_RETURN(const StoredTensor table,
                     variables_.Floats(name, {shape[0], hidden_size_}));
    return static_cast<int>(std::min<int64_t>(shape[0], kMaxContext));
  }

  std::string_view ModelType() {
    if (!encoder_.is_pre_norm) {
      if (encoder_.has_embedding_norm) return "bart";
      if (!spec_.starts_from_zero) spec_.name = "Transformer";
      return "marian";
    }
    if (encoder_.has_embedding_norm) return "mbart";
    constexpr int kRows = 4;
    if (hidden_size_ >= 4 &&
        BeginsWith(Tensor2TensorPositions(2, kRows, hidden_size_))) {
      return "m2m_100";
    }
    if (!BeginsWith(SinusoidalPositions(kRows, hidden_size_))) {
      spec_.name = "Transformer";
    }
    return "pegasus";
  }

  // True if the encoder's first positions are `rows`, rounded maybe.
  bool BeginsWith(const std::vector<float>& rows) const {
    constexpr float kRounding = 0x1p-7f;
    const StoredTensor& table =
        *variables_.file().Find("encoder/position_encodings/encodings");
    const DType dtype = table.dtype == "F32"   ? DType::kFloat32
                        : table.dtype == "F16" ? DType::kFloat16
                                               : DType::kBFloat16;
    const size_t size =
        std::min(rows.size(), table.data.size() / NumBytes(dtype));
    for (size_t i = 0; i < size; ++i) {
      const float stored = LoadAsFloat(&table.data[i * NumBytes(dtype)], dtype);
      if (!(std::abs(stored - rows[i]) <= kRounding)) return false;
    }
    return true;
  }

  // A token that config.json names; nullopt if it names none.
  absl::StatusOr<std::optional<TokenId>> Token(std::string_view field) const {
    const json::value* const token = FindField(options_, field);
    if (token == nullptr) return std::nullopt;
    if (!token->is_string()) {
      return InvalidArgument(field, " must be a token, got ", Shown(token));
    }
    const absl::StatusOr<TokenId> id =
        vocabulary_.IdOf(std::string_view(token->get_string()));
    if (!id.ok()) return Annotate(id.status(), field);
    return *id;
  }

  absl::Status ReadTokens() {
    if (spec_.is_whisper) {
      ASSIGN_OR_RETURN(spec_.config["eos_token_id"],
                       vocabulary_.IdOf("<|endoftext|>"));
      ASSIGN_OR_RETURN(spec_.config["decoder_start_token_id"],
                       vocabulary_.IdOf("<|startoftranscript|>"));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const std::optional<TokenId> eos, Token("eos_token"));
    spec_.config["eos_token_id"] =
        eos ? json::value(*eos) : json::value(nullptr);
    // A model without it begins with a token that its user chooses.
    ASSIGN_OR_RETURN(std::optional<TokenId> start,
                     Token("decoder_start_token"));
    if (!start) {
      ASSIGN_OR_RETURN(start, Token("bos_token"));
    }
    if (spec_.starts_from_zero) {
      start = static_cast<TokenId>(vocabulary_.tokens.size());
    }
    if (!start) {
      return InvalidArgument("decoder_start_token and bos_token are missing");
    }
    spec_.config["decoder_start_token_id"] = *start;
    return absl::OkStatus();
  }

  CTranslate2Variables& variables_;
  const json::object& options_;
  const CTranslate2Vocabulary& vocabulary_;
  int hidden_size_ = 0;
  Stack encoder_, decoder_;
  TransformerSpec spec_;
};

}  // namespace

void TransformerSpec::Settle(TransformerConfig* to) const {
  if (!name.empty()) to->family = name;
  if (norm_eps > 0) to->norm_eps = norm_eps;
  if (is_whisper) to->lacks_key_bias = false;  // it is stored, zeros
  if (num_positions == 0) return;              // T5's logits have no bias
  to->has_logits_bias = has_logits_bias;
  // Stored positions are added, sinusoids too, and begin with the first token.
  to->positions = PositionKind::kLearned;
  to->position_offset = 0;
  to->token_without_position.reset();
}

bool IsWhisperSpec(const CTranslate2File& file) {
  return file.specification() == kWhisper;
}

absl::Status CheckSpecification(const CTranslate2File& file) {
  const bool is_whisper = IsWhisperSpec(file);
  if (!is_whisper && file.specification() != kTransformer) {
    return InvalidArgument(
        "is a CTranslate2 model of ", Shown(file.specification()),
        ", which is not supported; TransformerSpec is, that of translators ",
        "and other encoder-decoders, and WhisperSpec");
  }
  const int max_revision = is_whisper ? kMaxWhisperRevision : kMaxRevision;
  if (file.revision() <= max_revision) return absl::OkStatus();
  return InvalidArgument("revision of ", file.specification(),
                         " must be at most ", max_revision, ", got ",
                         file.revision());
}

absl::StatusOr<TransformerSpec> ReadTransformerSpec(
    CTranslate2Variables& variables, const json::object& options,
    const CTranslate2Vocabulary& vocabulary) {
  return SpecReader(variables, options, vocabulary).Run();
}

}  // namespace espalier
