// BART: learned positions, two rows later than one would think, and a norm of
// the embeddings.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/families/bart_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

absl::Status ReadBart(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadNormsOfSums(json, config));
  RETURN_IF_ERROR(ReadBartFields(json, {}, config));
  config->positions = PositionKind::kLearned;
  config->position_offset = 2;
  config->has_embedding_norm = true;
  config->encoder->decoder_start_token_id = 2;
  config->eos_token_ids = {2};
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kBartFamily = {
    .model_type = "bart",
    .name = "BART",
    .architecture = "BartForConditionalGeneration",
    .read = ReadBart,
    .is_encoder_decoder = true};

}  // namespace espalier
