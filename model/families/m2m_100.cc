// M2M100, NLLB-200, SMaLL-100: translators between many languages. BART's
// parts, with norms before each of them and sinusoidal positions.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/families/bart_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

// Tokens have the positions after pad_token_id; padding itself has none.
absl::Status ReadPositions(const json::object& json,
                           TransformerConfig* config) {
  if (config->hidden_size < 4) {
    return InvalidArgument("d_model must be at least 4, got ",
                           config->hidden_size);
  }
  ASSIGN_OR_RETURN(const int pad_token_id,
                   ReadInt(json, "pad_token_id", 0, config->vocab_size - 1, 1));
  config->positions = PositionKind::kSinusoidal;
  config->sinusoids = SinusoidKind::kTensor2Tensor;
  config->position_offset = pad_token_id + 1;
  config->token_without_position = pad_token_id;
  return absl::OkStatus();
}

absl::Status ReadM2m100(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadBartFields(
      json, {.activation = Activation::kRelu, .scales_embeddings = true},
      config));
  RETURN_IF_ERROR(ReadNormsBefore(json, config));
  RETURN_IF_ERROR(ReadPositions(json, config));
  config->has_logits_bias = false;
  config->encoder->decoder_start_token_id = 2;
  config->eos_token_ids = {2};
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kM2m100Family = {
    .model_type = "m2m_100",
    .name = "M2M100",
    .architecture = "M2M100ForConditionalGeneration",
    .read = ReadM2m100,
    .is_encoder_decoder = true};

}  // namespace espalier
