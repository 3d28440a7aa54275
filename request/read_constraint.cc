#include "request/read_constraint.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "base/spelling.h"
#include "base/status.h"
#include "request/read_json.h"
#include "request/read_json_text.h"
#include "request/tool_call_language.h"

namespace espalier {
namespace {

constexpr std::string_view kWanted =
    "an object with regex, a string, choice, a list of strings, json_schema, a "
    "schema, grammar, a string, or tool_calls, an object";
constexpr std::string_view kWhitespace = "whitespace";
constexpr std::array<std::string_view, 6> kParts = {
    "regex", "choice", "json_schema", "grammar", "tool_calls", kWhitespace};

absl::Status ReadSchema(std::string_view name, const JsonText& json,
                        std::optional<std::string>* out) {
  const bool is_schema =
      json.is_object() || json.text == "true" || json.text == "false";
  if (!is_schema) return WrongType(name, "an object or a boolean", json.text);
  *out = std::string(json.text);
  return absl::OkStatus();
}

absl::Status ReadToolCalls(std::string_view name, const JsonText& json,
                           std::optional<std::string>* out) {
  RETURN_IF_ERROR(ReadToolCallRules(name, json).status());
  *out = std::string(json.text);
  return absl::OkStatus();
}

absl::Status ReadWhitespace(std::string_view name, const JsonText& json,
                            bool* has_spaces) {
  std::string whitespace;
  RETURN_IF_ERROR(Read(name, json, &whitespace));
  if (whitespace != "bounded" && whitespace != "none") {
    return InvalidField(FieldName{name}, " must be \"bounded\" or \"none\"",
                        Got(ShownInQuotes(whitespace)));
  }
  *has_spaces = whitespace == "bounded";
  return absl::OkStatus();
}

absl::Status SetKind(std::string_view field, std::string_view key,
                     const JsonText& json, ConstraintParams* params) {
  const std::string name = NameOfPart(field, key);
  if (key == "regex") return Read(name, json, &params->regex);
  if (key == "grammar") return Read(name, json, &params->grammar);
  if (key == "choice") return Read(name, json, &params->choice);
  if (key == "json_schema") return ReadSchema(name, json, &params->json_schema);
  if (key == "tool_calls") {
    return ReadToolCalls(name, json, &params->tool_calls);
  }
  return InvalidField(FieldName{field}, " must have no field ",
                      ShownInQuotes(key), DidYouMean(key, kParts));
}

}  // namespace

absl::Status ReadConstraint(std::string_view field, const JsonText& json,
                            std::optional<ConstraintParams>* out) {
  if (!json.is_object()) return WrongType(field, kWanted, json.text);
  ConstraintParams params;
  std::string first;  // the kind that was given
  bool has_whitespace = false;
  for (JsonItems items(json.text); items.Next();) {
    const std::string key = Unquoted(items.key());
    const JsonText value = {items.value()};
    if (value.is_null()) continue;
    if (key == kWhitespace) {
      has_whitespace = true;
      RETURN_IF_ERROR(
          ReadWhitespace(NameOfPart(field, key), value, &params.has_spaces));
      continue;
    }
    RETURN_IF_ERROR(SetKind(field, key, value, &params));
    if (!first.empty() && first != key) {
      return InvalidField(FieldName{field}, " must have one kind of language",
                          Got(first, " and ", key));
    }
    first = key;
  }
  if (first.empty()) return WrongType(field, kWanted, json.text);
  if (has_whitespace && !params.json_schema) {
    return InvalidField(FieldName{NameOfPart(field, kWhitespace)},
                        " must be unset without a schema", Got(first));
  }
  *out = std::move(params);
  return absl::OkStatus();
}

}  // namespace espalier
