// PEGASUS: sinusoidal positions as Marian's, and norms before each part.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/families/bart_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

absl::Status ReadPegasus(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadBartFields(json, {}, config));
  config->names.final_norm = "decoder.layer_norm";
  config->encoder->names.final_norm = "encoder.layer_norm";
  config->positions = PositionKind::kSinusoidal;
  config->encoder->decoder_start_token_id = 0;
  config->eos_token_ids = {1};
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kPegasusFamily = {
    .model_type = "pegasus",
    .name = "PEGASUS",
    .architecture = "PegasusForConditionalGeneration",
    .read = ReadPegasus,
    .is_encoder_decoder = true};

}  // namespace espalier
