// Whisper, distil-whisper: speech as text. BART's parts with norms before each
// of them, behind convolutions of log-mel frames; keys have no bias.
#include "base/status.h"
#include "model/config_fields.h"
#include "model/families/bart_fields.h"
#include "model/family_fields.h"
#include "model/model_family.h"

namespace espalier {
namespace {

constexpr int kMaxMelBins = 4096;

// The encoder's positions are as many as it has, half of its frames.
absl::Status ReadSpeech(const json::object& json, TransformerConfig* config) {
  EncoderConfig& encoder = *config->encoder;
  ASSIGN_OR_RETURN(encoder.num_mel_bins,
                   ReadInt(json, "num_mel_bins", 1, kMaxMelBins, 80));
  ASSIGN_OR_RETURN(encoder.max_tokens,
                   ReadInt(json, "max_source_positions", 1, kMaxContext, 1500));
  ASSIGN_OR_RETURN(config->max_context,
                   ReadInt(json, "max_target_positions", 2, kMaxContext, 448));
  encoder.names.conv1 = "encoder.conv1";
  encoder.names.conv2 = "encoder.conv2";
  config->names.embedding = "decoder.embed_tokens";
  config->names.embedding_aliases = {};
  config->names.head = "proj_out";
  return absl::OkStatus();
}

absl::Status ReadWhisper(const json::object& json, TransformerConfig* config) {
  RETURN_IF_ERROR(ReadBartFields(json,
                                 {.hidden_size = 384,
                                  .num_layers = 4,
                                  .num_heads = 6,
                                  .intermediate_size = 1536},
                                 config));
  RETURN_IF_ERROR(ReadNormsBefore(json, config));
  RETURN_IF_ERROR(ReadSpeech(json, config));
  // transformers reads the field and does not use it.
  config->scales_embeddings = false;
  config->positions = PositionKind::kLearned;
  config->lacks_key_bias = true;
  config->has_logits_bias = false;
  config->encoder->decoder_start_token_id = 50257;
  config->eos_token_ids = {50256};
  return absl::OkStatus();
}

}  // namespace

constexpr ModelFamily kWhisperFamily = {
    .model_type = "whisper",
    .name = "Whisper",
    .architecture = "WhisperForConditionalGeneration",
    .read = ReadWhisper,
    .is_encoder_decoder = true};

}  // namespace espalier
