// The request format, the way in: one JSON object a line
// (docs/request_format.md). Every field is known or an error that names it;
// none is ever ignored. The way out is result_json.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"
#include "exec_request/generation_params.h"

namespace espalier {

// What a line asks for: a text or tokens, one of the two.
struct RequestBody {
  std::optional<std::string> prompt;
  std::vector<TokenId> prompt_tokens;
  GenerationParams params;
  std::string caller_id = {};  // Request::caller_id; not of the line
};

struct RequestLine {
  // As given, a string or a number; null if the line has none or is broken.
  json::value id;
  absl::StatusOr<RequestBody> body;
};

RequestLine ParseRequestLine(std::string_view line);

}  // namespace espalier
