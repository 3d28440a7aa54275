// Mistral: Llama with a sliding window in every layer.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr int kDefaultMistralWindow = 4096;

absl::Status ReadMistral(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadDecoder(json, {.num_kv_heads = 8}, config));
  ASSIGN_OR_RETURN(const int window,
                   ReadWindow(json, "sliding_window", kDefaultMistralWindow));
  for (LayerConfig& layer : config->layers) layer.window = window;
  // transformers looks past layer_types here, so they may only say the same.
  TransformerConfig named = *config;
  RETURN_IF_ERROR(ReadLayerTypes(
      json, window, [&](int) { return window > 0; }, &named));
  if (named.layers != config->layers) {
    return InvalidArgument("layer_types must all be ",
                           window > 0 ? "sliding_attention" : "full_attention",
                           ", got ", Shown(FindField(json, "layer_types")));
  }
  return ReadRope(json, {}, config);
}

}  // namespace

constexpr ModelFamily kMistralFamily = {.model_type = "mistral",
                                        .name = "Mistral",
                                        .architecture = "MistralForCausalLM",
                                        .read = ReadMistral};

}  // namespace espalier
