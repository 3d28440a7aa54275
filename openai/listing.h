// GET /v1/models: which models there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "openai/limits.h"

namespace espalier::openai {

// Fields of a speech model in "espalier".
struct SpeechCard {
  bool has_words = false;   // "words": their times and probabilities
  bool translates = false;  // "translates": to English
  int64_t max_audio_seconds = 0;
  int64_t max_audio_bytes = 0;  // a file
};

struct ModelCard {
  std::string id;       // what calls name
  int64_t created = 0;  // seconds since 1970
  std::string root;     // the directory's name
  int64_t max_model_len = 0;
  // "espalier": {"task": ...}: "generate", or "transcribe" if set.
  std::optional<SpeechCard> speech = std::nullopt;
  bool has_chat_template = false;  // "espalier": {"chat": ...}
  // "espalier": {"templates": ...}: of prompts, the default first.
  std::vector<std::string> templates;
  bool has_traces = false;  // "espalier": {"traces": ...}
  Limits limits;  // "espalier": {"max_num_beams", "max_n", "max_tokens"}
};

// {"object": "list", "data": [...]}.
std::string WriteModels(std::span<const ModelCard> models);
// {"id", "object": "model", ...}, as GET /v1/models/{id} has it.
std::string WriteModel(const ModelCard& model);

}  // namespace espalier::openai
