#include "examples/cli/options.h"

#include <algorithm>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "examples/cli/exit_code.h"
#include "examples/cli/output.h"
#include "exec_request/param_fields.h"

namespace espalier::cli {
namespace {

// `text` as one argument of a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

absl::Status NotJson(const ParamField& field, const std::string& text,
                     const absl::Status& error) {
  const std::string flag = Flag(field.name);
  std::string message = Concat(flag, " ", Shown(text), ": ", Message(error));
  if (field.value == "TEXT") {
    const json::array as_list = {json::value(text)};
    message += Concat("; to stop at this very text, give ", flag, " ",
                      Quoted(WriteJson(as_list)));
  }
  return InvalidArgument(message);
}

// A value as typed: JSON where it is JSON, otherwise a string. Where a text is
// wanted only JSON strings, lists and objects count, so that --stop 5 means
// what it says. What begins like a list or an object has to be one: a bracket
// too few would make another text of it.
// Errors: kInvalidArgument naming the option.
// REQUIRES: well-formed UTF-8.
absl::StatusOr<json::value> ReadValue(const ParamField& field,
                                      const std::string& text) {
  const bool is_bracketed = text.starts_with('[') || text.starts_with('{');
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok() && is_bracketed) return NotJson(field, text, value.status());
  const bool is_text = field.value == "TEXT" && !is_bracketed;
  if (!value.ok() || (is_text && !value->is_string())) return json::value(text);
  return *std::move(value);
}

// The texts of all values together, as one list; a value of another kind is
// handed on, for the field to refuse. Errors and REQUIRES as above.
absl::StatusOr<json::value> JoinTexts(const ParamField& field,
                                      const std::vector<std::string>& texts) {
  json::array all;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(json::value value, ReadValue(field, text));
    if (value.is_object()) return value;
    if (!value.is_array()) value = json::array{std::move(value)};
    for (json::value& item : value.as_array()) all.push_back(std::move(item));
  }
  return json::value(std::move(all));
}

absl::StatusOr<json::value> ReadValues(const ParamField& field,
                                       const std::vector<std::string>& texts) {
  if (!std::ranges::all_of(texts, IsUtf8)) {
    return InvalidArgument(Flag(field.name), " is not UTF-8");
  }
  if (field.value == "TEXT") return JoinTexts(field, texts);
  if (texts.size() == 1) return ReadValue(field, texts.front());
  return InvalidArgument(Flag(field.name), " is given ", texts.size(),
                         " times: ", Shown(texts[0]), ", ", Shown(texts[1]));
}

}  // namespace

std::string Flag(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return (flag.size() == 1 ? "-" : "--") + flag;
}

absl::StatusOr<GenerationParams> ReadParams(const ParamTexts& texts) {
  GenerationParams params;
  for (const auto& [name, values] : texts) {
    const ParamField& field = *FindParamField(name);  // an option of ours
    ASSIGN_OR_RETURN(const json::value value, ReadValues(field, values));
    RETURN_IF_ERROR(field.read(name, value, &params));
  }
  return params;
}

absl::Status CheckTrace(const CommonOptions& options, const std::string& option,
                        const std::string& path) {
  const std::string& trace = options.runtime.trace;
  if (trace == "-") return InvalidArgument("--trace needs a file, got -");
  if (IsSameFile(trace, path)) {
    return InvalidArgument("--trace and ", option, " are the same file, ",
                           path);
  }
  return absl::OkStatus();
}

int Refuse(const absl::Status& status) {
  PrintToStderr(Concat("espalier: ", Message(status), "\n"));
  return kNothingRan;
}

}  // namespace espalier::cli
