#include "benchmarks/executor/cuda/decode_case.h"

#include <cstdio>
#include <map>
#include <vector>

#include "base/status.h"

namespace espalier {
namespace {

constexpr int kMaxContext = 16384;

TransformerConfig Shape(int hidden, int layers, int heads, int kv_heads,
                        int head_dim, int ffn, int vocab, bool tied) {
  TransformerConfig config;
  config.hidden_size = hidden;
  config.layers.assign(layers, {.intermediate_size = ffn});
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.vocab_size = vocab;
  config.tie_word_embeddings = tied;
  config.max_context = kMaxContext;
  return config;
}

// Gives `local` layers a window, then none to one layer, and so on; 0: a window
// to all layers.
void SetWindows(int window, int local, TransformerConfig* config) {
  for (int i = 0; i < config->num_layers(); ++i) {
    const bool is_global = local > 0 && i % (local + 1) == local;
    config->layers[i].window = is_global ? 0 : window;
  }
}

TransformerConfig Mistral7b() {
  TransformerConfig config =
      Shape(4096, 32, 32, 8, 128, 14336, 32000, /*tied=*/false);
  SetWindows(4096, 0, &config);
  return config;
}

TransformerConfig Gemma(TransformerConfig config) {
  config.norm_adds_one = true;
  config.has_post_norms = true;
  config.activation = Activation::kGeluTanh;
  config.query_pre_attn_scalar = 256;
  config.scales_embeddings = true;
  return config;
}

TransformerConfig Gemma2Of2b() {
  TransformerConfig config =
      Gemma(Shape(2304, 26, 8, 4, 256, 9216, 256000, /*tied=*/true));
  SetWindows(4096, 1, &config);
  config.attention_soft_cap = 50;
  config.logit_soft_cap = 30;
  return config;
}

TransformerConfig Gemma3Of1b() {
  TransformerConfig config =
      Gemma(Shape(1152, 26, 4, 1, 256, 6912, 262144, /*tied=*/true));
  SetWindows(512, 5, &config);
  config.has_qk_norms = true;
  config.local_rope = config.rope;
  return config;
}

TransformerConfig Gpt2() {
  TransformerConfig config =
      Shape(768, 12, 12, 12, 64, 3072, 50257, /*tied=*/true);
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.activation = Activation::kGeluTanh;
  config.has_gate = false;
  config.has_qkv_bias = config.has_output_bias = config.has_mlp_bias = true;
  return config;
}

// Windows of 30 s: 3,000 frames, 1,500 positions.
TransformerConfig Whisper(int hidden, int encoder_layers, int layers, int mel,
                          int vocab) {
  TransformerConfig config = Shape(hidden, layers, hidden / 64, hidden / 64, 64,
                                   4 * hidden, vocab, /*tied=*/true);
  for (LayerConfig& layer : config.layers) layer.has_cross_attention = true;
  config.max_context = 448;
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.activation = Activation::kGelu;
  config.has_gate = false;
  config.has_qkv_bias = config.has_output_bias = config.has_mlp_bias = true;
  config.lacks_key_bias = true;
  EncoderConfig& encoder = config.encoder.emplace();
  encoder.layers.assign(encoder_layers, {.intermediate_size = 4 * hidden});
  encoder.max_tokens = 1500;
  encoder.num_mel_bins = mel;
  return config;
}

// Shapes of benchmarks/peers/torch_graph.py, and one for each family with
// features that Llama lacks.
const std::map<std::string, TransformerConfig>& Shapes() {
  static const auto* const shapes =
      new std::map<std::string, TransformerConfig>{
          {"68m", Shape(768, 2, 12, 12, 64, 3072, 32000, false)},
          {"0.6b", Shape(1024, 28, 16, 8, 128, 3072, 151936, true)},
          {"1b", Shape(2048, 16, 32, 8, 64, 8192, 128256, true)},
          {"8b", Shape(4096, 32, 32, 8, 128, 14336, 128256, false)},
          {"mistral-7b", Mistral7b()},
          {"gemma2-2b", Gemma2Of2b()},
          {"gemma3-1b", Gemma3Of1b()},
          {"gpt2", Gpt2()},
          {"whisper-base", Whisper(512, 6, 6, 80, 51865)},
          {"whisper-large", Whisper(1280, 32, 32, 128, 51866)},
          {"whisper-turbo", Whisper(1280, 32, 4, 128, 51866)}};
  return *shapes;
}

}  // namespace

absl::StatusOr<DecodeCase> DecodeCase::Parse(const std::string& text) {
  DecodeCase parsed;
  char model[16] = "";
  char kind[2] = "";
  char rest;
  const int num_read = std::sscanf(
      text.c_str(), "%15[^:]:%d%1[xs]%d/%d%c", model, &parsed.num_requests,
      kind, &parsed.num_beams, &parsed.num_prompt_tokens, &rest);
  if (num_read != 5 || !Shapes().contains(model) || parsed.num_requests < 1 ||
      parsed.num_beams < 1 || parsed.num_prompt_tokens < 1) {
    return InvalidArgument("not a case: ", text);
  }
  const auto& encoder = Shapes().at(model).encoder;
  if (encoder && parsed.num_prompt_tokens != encoder->max_tokens) {
    return InvalidArgument("not a case: ", text, ": sources have ",
                           encoder->max_tokens, " positions");
  }
  parsed.name = text;
  parsed.model = model;
  parsed.samples = kind[0] == 's';
  return parsed;
}

const TransformerConfig& DecodeCase::shape() const {
  return Shapes().at(model);
}

GenerationParams DecodeCase::Params(int i, int num_new_tokens) const {
  GenerationParams params;
  if (samples) {
    params.do_sample = true;
    params.seed = i;
    params.num_return_sequences = num_beams;
  } else {
    params.num_beams = num_beams;
  }
  params.max_new_tokens = num_new_tokens;
  params.ignore_eos = true;
  return params;
}

double DecodeCase::NumLayerWeights() const {
  const TransformerConfig& config = shape();
  double projections =
      double(config.hidden_size) * (2 * config.q_size() + 2 * config.kv_size());
  // A step reads no weights for the keys and values of sources.
  if (config.encoder) {
    projections += 2.0 * config.hidden_size * config.q_size();
  }
  const double mlp = (config.has_gate ? 3.0 : 2.0) * config.hidden_size *
                     config.layers[0].intermediate_size;
  return config.num_layers() * (projections + mlp);
}

double DecodeCase::NumWeights() const {
  return NumLayerWeights() + double(shape().vocab_size) * shape().hidden_size;
}

double DecodeCase::StepBytes(int num_generated, int layer_weight_bytes) const {
  const double num_tokens =
      num_requests * (num_prompt_tokens + double(num_beams) * num_generated);
  const double token = 2.0 * shape().num_layers() * shape().kv_size();
  return 2 * (NumWeights() + num_tokens * token) +
         (layer_weight_bytes - 2) * NumLayerWeights();
}

double DecodeCase::StepFlops(int num_generated) const {
  const double num_tokens = num_prompt_tokens + num_generated;
  const double attention =
      2 * num_tokens * shape().num_layers() * shape().q_size();
  return 2 * num_rows() * (NumWeights() + attention);
}

}  // namespace espalier
