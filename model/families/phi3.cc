// Phi-3, 3.5 and 4: q, k, v in one tensor and gate, up in another; longrope,
// partly rotated heads, and a sliding window in every layer if there is one.
#include "base/status.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr RopeType kPhi3RopeTypes[] = {RopeType::kDefault, RopeType::kLongRope};

absl::Status ReadPhi3(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadDecoder(json, {.norm_eps = 1e-5}, config));
  config->names.qkv = "self_attn.qkv_proj";
  config->names.gate_up = "mlp.gate_up_proj";
  ASSIGN_OR_RETURN(const int window, ReadWindow(json, "sliding_window", 0));
  for (LayerConfig& layer : config->layers) layer.window = window;
  return ReadRope(json,
                  {.types = kPhi3RopeTypes,
                   .allows_partial = true,
                   .has_old_longrope_names = true,
                   .original_context = 4096},
                  config);
}

}  // namespace

constexpr ModelFamily kPhi3Family = {.model_type = "phi3",
                                     .name = "Phi-3",
                                     .architecture = "Phi3ForCausalLM",
                                     .read = ReadPhi3};

}  // namespace espalier
