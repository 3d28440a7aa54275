// Marian: translators of the OPUS-MT project. Sinusoidal positions.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/families/bart_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

// Two vocabularies, or two embeddings of one.
absl::Status CheckIsShared(const json::object& json, int vocab_size) {
  ASSIGN_OR_RETURN(const bool is_shared,
                   ReadBool(json, "share_encoder_decoder_embeddings", true));
  if (!is_shared) {
    return InvalidArgument(
        "share_encoder_decoder_embeddings false is not supported");
  }
  const json::value* const size = FindField(json, "decoder_vocab_size");
  if (size == nullptr || *size == vocab_size) return absl::OkStatus();
  return InvalidArgument("decoder_vocab_size must be vocab_size, ", vocab_size,
                         ", got ", Shown(size));
}

absl::Status ReadMarian(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadNormsOfSums(json, config));
  RETURN_IF_ERROR(ReadBartFields(json, {}, config));
  RETURN_IF_ERROR(CheckIsShared(json, config->vocab_size));
  config->translates_sentences = true;
  config->positions = PositionKind::kSinusoidal;
  config->encoder->decoder_start_token_id = 58100;
  config->eos_token_ids = {0};
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kMarianFamily = {.model_type = "marian",
                                       .name = "Marian",
                                       .architecture = "MarianMTModel",
                                       .read = ReadMarian,
                                       .is_encoder_decoder = true};

}  // namespace espalier
