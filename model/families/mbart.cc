// mBART-50 and mBART-cc25: BART's parts with norms before each of them.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/families/bart_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

absl::Status ReadMbart(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadBartFields(json, {}, config));
  RETURN_IF_ERROR(ReadNormsBefore(json, config));
  ASSIGN_OR_RETURN(config->has_embedding_norm,
                   ReadBool(json, "normalize_embedding", true));
  if (!config->has_embedding_norm) {
    return InvalidArgument("normalize_embedding false is not supported");
  }
  config->positions = PositionKind::kLearned;
  config->position_offset = 2;
  // transformers' generate begins with bos_token_id where there is no
  // decoder_start_token_id.
  ASSIGN_OR_RETURN(config->encoder->decoder_start_token_id,
                   ReadInt(json, "bos_token_id", 0, config->vocab_size - 1, 0));
  config->eos_token_ids = {2};
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kMbartFamily = {
    .model_type = "mbart",
    .name = "mBART",
    .architecture = "MBartForConditionalGeneration",
    .read = ReadMbart,
    .is_encoder_decoder = true};

}  // namespace espalier
