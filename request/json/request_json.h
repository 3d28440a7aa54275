// The request format, the way in: one JSON object a line
// (docs/request_format.md). An unknown field is an error that names it; no
// field is ignored, and null means that the field is absent. result_json.h
// writes the results.
//
// A line is scanned once, and its lists are parsed directly into the request:
// a few nanoseconds per number, and no memory beside the request's own
// (request_json_benchmark).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"
#include "request/generation_params.h"
#include "request/param_fields.h"

namespace espalier {

// A parsed line: exactly one of a text, tokens or a conversation, and its
// params.
struct RequestBody {
  std::optional<std::string> prompt;
  std::vector<TokenId> prompt_tokens;
  GenerationParams params;
  std::string caller_id =
      {};  // Request::caller_id: the line's id, if it has one
  // Names of the params that the line gives; the model's defaults fill in the
  // others (request/generation_defaults.h).
  std::vector<std::string_view> given = {};
  // Objects with a "role", at least one; the model's chat template interprets
  // their other members (text/chat/chat_template.h).
  std::optional<json::array> messages = {};
  // The prompt ends where the content of the last message does
  // (text/chat/final_message.h).
  bool continue_final_message = false;
  // Name of the prompt template for `prompt`; empty: the default.
  std::string template_name = {};
  // Parses names of special tokens in `prompt` as those tokens.
  bool parse_special = false;
  // Each sentence of `prompt` is translated by itself (espalier/split_text.h).
  // Unset: the program or the model decides.
  std::optional<bool> split_sentences = {};
  // Params in `given` that the line names by an alias.
  std::vector<GivenParam> aliases = {};
};

// Rewrites the error of a request with the names that its line uses.
absl::Status InWordsOfLine(const std::vector<GivenParam>& aliases,
                           const absl::Status& error);

struct RequestLine {
  // As JSON, to be echoed: a string, or a number as it was written. Empty if
  // the line has none or is broken.
  std::string id;
  absl::StatusOr<RequestBody> body;
};

// Limits on the size of a line.
struct RequestLineLimits {
  // Values in the list or object of one field, nested ones included.
  int64_t max_list_elements = 1 << 20;
  // Name of that limit in errors.
  std::string_view max_list_elements_name = "max_list_elements";
};

// Errors, of the body: kInvalidArgument naming the byte or the field, and the
// value.
RequestLine ParseRequestLine(std::string_view line,
                             const RequestLineLimits& limits = {});

}  // namespace espalier
