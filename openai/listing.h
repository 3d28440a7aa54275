// GET /v1/models: which models there are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "openai/limits.h"

namespace espalier::openai {

struct ModelCard {
  std::string id;       // what calls name
  int64_t created = 0;  // seconds since 1970
  std::string root;     // the directory's name
  int64_t max_model_len = 0;
  // "espalier": {"task": ...}: "generate" or "transcribe".
  std::string task = "generate";
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
