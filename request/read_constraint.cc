#include "request/read_constraint.h"

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "base/shown_bytes.h"
#include "base/spelling.h"
#include "base/status.h"
#include "constrain/json_whitespace.h"
#include "request/param_checks.h"
#include "request/read_json.h"
#include "request/read_json_text.h"
#include "request/tool_call_language.h"

namespace espalier {
namespace {

constexpr std::string_view kWanted =
    "an object with regex, a string, choice, a list of strings, json_schema, a "
    "schema, grammar, a string, tool_calls, an object, items, the name of a "
    "catalogue, or must_contain, a list of strings";
constexpr std::string_view kWhitespace = "whitespace";
constexpr std::string_view kDisableAdditionalProperties =
    "disable_additional_properties";
constexpr std::string_view kExclude = "exclude";
constexpr std::string_view kExcludePrefixes = "exclude_prefixes";
constexpr std::string_view kMustContain = "must_contain";
constexpr std::array<std::string_view, 11> kParts = {
    "regex",      "choice",         "json_schema", "grammar",
    "tool_calls", "items",          kWhitespace,   kDisableAdditionalProperties,
    kExclude,     kExcludePrefixes, kMustContain};

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
                            ConstraintParams* params) {
  std::string whitespace;
  RETURN_IF_ERROR(Read(name, json, &whitespace));
  params->has_spaces = whitespace != "none";
  params->whitespace = std::nullopt;
  if (whitespace == "bounded" || whitespace == "none") return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckWhitespace(name, whitespace, "\"bounded\", \"none\" or "));
  params->whitespace = std::move(whitespace);
  return absl::OkStatus();
}

absl::Status ReadExcluded(std::string_view name, const JsonText& json,
                          TextOrTokens* out) {
  if (json.is_string()) {
    *out = Unquoted(json.text);
    return absl::OkStatus();
  }
  if (!json.is_array()) {
    return WrongType(name, "a list of token ids or a text", json.text);
  }
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(Read(name, json, &ids));
  RETURN_IF_ERROR(CheckTokens(name, ids, std::numeric_limits<TokenId>::max()));
  *out = std::vector<TokenId>(ids.begin(), ids.end());
  return absl::OkStatus();
}

absl::Status ReadExclude(std::string_view name, const JsonText& json,
                         SharedList<TextOrTokens>* out) {
  if (!json.is_array()) return WrongType(name, "a list", json.text);
  std::vector<TextOrTokens> excluded;
  for (JsonItems items(json.text); items.Next();) {
    const JsonText item = {items.value()};
    // To name an item costs more than to read it.
    if (ReadExcluded(name, item, &excluded.emplace_back()).ok()) continue;
    return ReadExcluded(Concat(name, "[", excluded.size() - 1, "]"), item,
                        &excluded.back());
  }
  *out = std::move(excluded);
  return absl::OkStatus();
}

// Sets a part that is no kind of language by itself. False: it is a kind.
absl::StatusOr<bool> SetOption(std::string_view field, std::string_view key,
                               const JsonText& json, ConstraintParams* params) {
  const std::string name = NameOfPart(field, key);
  if (key == kWhitespace) {
    RETURN_IF_ERROR(ReadWhitespace(name, json, params));
    return true;
  }
  if (key == kDisableAdditionalProperties) {
    RETURN_IF_ERROR(Read(name, json, &params->disable_additional_properties));
    return true;
  }
  if (key == kMustContain) {
    RETURN_IF_ERROR(Read(name, json, &params->must_contain));
    if (!params->must_contain.empty()) return true;
    return InvalidField(FieldName{name}, " must not be empty", Got("[]"));
  }
  if (key == kExclude) {
    RETURN_IF_ERROR(ReadExclude(name, json, &params->exclude));
    return true;
  }
  if (key == kExcludePrefixes) {
    RETURN_IF_ERROR(Read(name, json, &params->exclude_prefixes));
    return true;
  }
  return false;
}

absl::Status SetKind(std::string_view field, std::string_view key,
                     const JsonText& json, ConstraintParams* params) {
  const std::string name = NameOfPart(field, key);
  if (key == "regex") return Read(name, json, &params->regex);
  if (key == "grammar") return Read(name, json, &params->grammar);
  if (key == "choice") return Read(name, json, &params->choice);
  if (key == "items") return Read(name, json, &params->items);
  if (key == "json_schema") return ReadSchema(name, json, &params->json_schema);
  if (key == "tool_calls") {
    return ReadToolCalls(name, json, &params->tool_calls);
  }
  return InvalidField(FieldName{field}, " must have no field ",
                      ShownInQuotes(key), DidYouMean(key, kParts));
}

}  // namespace

absl::Status CheckWhitespace(std::string_view field, std::string_view pattern,
                             std::string_view wanted) {
  const absl::Status status = CompileJsonWhitespace(pattern).status();
  if (status.ok()) return absl::OkStatus();
  return InvalidField(FieldName{field}, " must be ", wanted,
                      "a regular expression of white space: ", Message(status),
                      Got(BytesInQuotes(pattern)));
}

absl::Status ReadConstraint(std::string_view field, const JsonText& json,
                            std::optional<ConstraintParams>* out) {
  if (!json.is_object()) return WrongType(field, kWanted, json.text);
  ConstraintParams params;
  std::string first;                 // the kind that was given
  std::vector<std::string> options;  // parts that go with one kind alone
  for (JsonItems items(json.text); items.Next();) {
    const std::string key = Unquoted(items.key());
    const JsonText value = {items.value()};
    if (value.is_null()) continue;
    ASSIGN_OR_RETURN(const bool is_option,
                     SetOption(field, key, value, &params));
    if (is_option) {
      options.push_back(key);
      continue;
    }
    RETURN_IF_ERROR(SetKind(field, key, value, &params));
    if (!first.empty() && first != key) {
      return InvalidField(FieldName{field}, " must have one kind of language",
                          Got(first, " and ", key));
    }
    first = key;
  }
  if (first.empty() && params.must_contain.empty()) {
    return WrongType(field, kWanted, json.text);
  }
  for (const std::string& option : options) {
    if (option == kMustContain) continue;
    const bool is_of_schema =
        option == kWhitespace || option == kDisableAdditionalProperties;
    if (is_of_schema ? params.json_schema.has_value()
                     : params.items.has_value()) {
      continue;
    }
    return InvalidField(FieldName{NameOfPart(field, option)},
                        " must be unset without ",
                        is_of_schema ? "a schema" : "items",
                        Got(first.empty() ? kMustContain : first));
  }
  *out = std::move(params);
  return absl::OkStatus();
}

}  // namespace espalier
