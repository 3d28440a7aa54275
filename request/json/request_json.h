// The request format, the way in: one JSON object a line
// (docs/request_format.md). Every field is known or an error that names it;
// none is ever ignored, but null is as if its field were not there. The way out
// is result_json.h.
//
// A line is looked at once, and its lists are read straight into the request:
// some nanoseconds a number, and no memory beside the request's own
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

namespace espalier {

// A param that a line gives by its alias.
struct GivenAlias {
  std::string_view param;  // "max_new_tokens"
  std::string_view alias;  // "max_tokens"
};

// What a line asks for: a text, tokens or a conversation, one of the three.
struct RequestBody {
  std::optional<std::string> prompt;
  std::vector<TokenId> prompt_tokens;
  GenerationParams params;
  std::string caller_id =
      {};  // Request::caller_id: the line's id, if it has one
  // The params that it gives, by their names; what it leaves open the model's
  // defaults fill in (request/generation_defaults.h).
  std::vector<std::string_view> given = {};
  // Objects with a "role", at least one; the rest is for the model's chat
  // template to look at (text/chat/chat_template.h).
  std::optional<json::array> messages = {};
  // Whether the prompt ends where the content of the last message does
  // (text/chat/final_message.h).
  bool continue_final_message = false;
  // Which of the model's prompt templates `prompt` goes into; empty: the
  // default.
  std::string template_name = {};
  // Whether names of special tokens in `prompt` are those tokens.
  bool parse_special = false;
  // Each sentence of `prompt` is translated by itself (espalier/split_text.h).
  // Unset: the program or the model decides.
  std::optional<bool> split_sentences = {};
  // Request::num_continued of prompt_tokens that were made of something else.
  std::optional<int64_t> num_continued = {};
  // Those of `given` that it calls by another name.
  std::vector<GivenAlias> aliases = {};
};

// The error of a request, which calls params what its line calls them.
absl::Status InWordsOfLine(const std::vector<GivenAlias>& aliases,
                           const absl::Status& error);

struct RequestLine {
  // As JSON, to be echoed: a string, or a number as it was written. Empty if
  // the line has none or is broken.
  std::string id;
  absl::StatusOr<RequestBody> body;
};

// How much a line may ask for.
struct RequestLineLimits {
  // Of a list or an object that a field is; of lists in it, and what they hold.
  int64_t max_list_elements = 1 << 20;
  // What errors call that.
  std::string_view max_list_elements_name = "max_list_elements";
};

// Errors, of the body: kInvalidArgument naming the byte or the field, and the
// value.
RequestLine ParseRequestLine(std::string_view line,
                             const RequestLineLimits& limits = {});

}  // namespace espalier
