// The request format: one JSON object a line in, one JSON object a line out
// (docs/request_format.md). Every field is known or an error that names it;
// none is ever ignored.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"
#include "exec_request/generation_params.h"
#include "exec_request/request.h"

namespace espalier {

// A field of `params`: the one list that parsing, the command line's options
// and their help are made from.
struct ParamField {
  std::string_view name;   // "num_beams"
  std::string_view alias;  // another name for it, or ""
  std::string_view help;   // one line, with limits
};
std::span<const ParamField> ParamFields();

// Sets one field of `*params` by its name or alias.
// Errors: kInvalidArgument naming the field, and the value if it has the
// wrong type. Ranges are checked later, by ValidateParams.
absl::Status SetParam(std::string_view name, const json::value& value,
                      GenerationParams* params);

// What a line asks for: a text or tokens, one of the two.
struct RequestBody {
  std::optional<std::string> prompt;
  std::vector<TokenId> prompt_tokens;
  GenerationParams params;
};

struct RequestLine {
  // As given, a string or a number; null if the line has none or is broken.
  json::value id;
  absl::StatusOr<RequestBody> body;
};

RequestLine ParseRequestLine(std::string_view line);

// {"id", "hypotheses": [...], "usage": {...}}.
//   texts  [hypotheses]  or empty: "text" is left out then
std::string WriteResultLine(const json::value& id, const Result& result,
                            std::span<const std::string> texts);
// {"id", "error": {"code", "message"}}.
std::string WriteErrorLine(const json::value& id, const absl::Status& error);

}  // namespace espalier
