// Returns the error of a request line, for a model like en-fr.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "request/json/request_json.h"
#include "request/request.h"

namespace espalier::testing {

inline ModelDescription EnFr() {
  ModelDescription model;
  model.vocab_size = 6000;
  model.max_context = 1024;
  model.eos_token_ids = {2};
  model.has_shareable_pages = true;
  return model;
}

// REQUIRES: the prompt is tokens.
inline absl::Status Check(const std::string& line) {
  RequestLine parsed = ParseRequestLine(line);
  if (!parsed.body.ok()) return parsed.body.status();
  Request request{parsed.body->prompt_tokens, parsed.body->params};
  return InWordsOfLine(parsed.body->aliases, ValidateRequest(EnFr(), &request));
}

}  // namespace espalier::testing
