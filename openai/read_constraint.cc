#include "openai/read_constraint.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "request/constraint_params.h"
#include "request/read_constraint.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

constexpr std::string_view kConstraintParam = "constraint";

// Members of vLLM's structured_outputs that are refused.
constexpr std::string_view kRefusedOutputs[] = {"grammar", "structural_tag",
                                                "disable_additional_properties",
                                                "whitespace_pattern"};
constexpr std::string_view kAnyObject = R"({"type":"object"})";

// Sets the constraint, given by the field `name`.
absl::Status SetConstraint(std::string_view name, const JsonText& json,
                           std::optional<ConstraintParams> constraint,
                           CallDraft* draft) {
  Call& call = draft->call;
  if (call.Gives(kConstraintParam)) {
    return InvalidField(
        FieldName{call.NameOf(kConstraintParam)}, " and ", FieldName{name},
        " both say what the text of the answer is", Got(Shown(json.text)));
  }
  call.params.constraint = std::move(constraint);
  MarkGiven(kConstraintParam, name, draft);
  return absl::OkStatus();
}

// Sets `*out` to the text of a schema: an object, a boolean, or a string that
// has one.
absl::Status ReadSchemaText(std::string_view name, const JsonText& json,
                            std::string* out) {
  std::string text(json.text);
  if (json.text.starts_with('"')) {
    text = Unquoted(json.text);
    const absl::Status status = ParseJson(text).status();
    if (!status.ok()) {
      return InvalidField(FieldName{name},
                          " must be a JSON Schema: ", Message(status));
    }
  }
  std::optional<ConstraintParams> constraint;
  const std::string object = Concat(R"({"json_schema": )", text, "}");
  if (!ReadConstraint(name, JsonText{object}, &constraint).ok() ||
      !constraint->json_schema) {
    return WrongType(name, "an object, a boolean, or a string with one of them",
                     json.text);
  }
  *out = *std::move(constraint->json_schema);
  return absl::OkStatus();
}

// The members of a response_format.
struct Format {
  std::string type = {};
  std::string schema = {};  // empty: there is none
};

// `json` is the format, or its member json_schema.
absl::Status ReadFormatMembers(const std::string& path, const JsonText& json,
                               Format* format) {
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = {items.value()};
    const std::string key = Unquoted(items.key());
    const std::string member = NameOfPart(path, key);
    if (value.is_null()) continue;
    if (key == "schema") {
      RETURN_IF_ERROR(ReadSchemaText(member, value, &format->schema));
    } else if (key == "strict") {
      bool strict = false;
      RETURN_IF_ERROR(Read(member, value, &strict));
    } else if (key == "name" || key == "description") {
      std::string text;
      RETURN_IF_ERROR(Read(member, value, &text));
    } else if (key == "type" && !path.ends_with(".json_schema")) {
      RETURN_IF_ERROR(Read(member, value, &format->type));
    } else if (key == "json_schema" && !path.ends_with(".json_schema")) {
      if (!value.is_object()) return WrongType(member, "an object", value.text);
      RETURN_IF_ERROR(ReadFormatMembers(member, value, format));
    } else {
      return InvalidField(FieldName{member}, " is not supported",
                          Got(Shown(value.text)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadStructuredOutputs(std::string_view name, const JsonText& json,
                                   const Limits& limits, CallDraft* draft) {
  if (!json.is_object()) return WrongType(name, "an object", json.text);
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  std::string kinds = "{";  // as the members of `constraint`
  const auto add = [&](std::string_view kind, std::string_view value) {
    if (kinds.size() > 1) kinds += ", ";
    kinds += Concat("\"", kind, "\": ", value);
  };
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = {items.value()};
    const std::string key = Unquoted(items.key());
    const bool is_off = value.is_null() || value.text == "false";
    if (std::ranges::find(kRefusedOutputs, key) != std::end(kRefusedOutputs)) {
      if (is_off) continue;
      return InvalidField(FieldName{NameOfPart(name, key)},
                          " is not supported: structured_outputs has json, "
                          "json_object, regex or choice",
                          Got(Shown(value.text)));
    }
    if (key == "json_object" || key == "disable_any_whitespace") {
      bool is_on = false;
      if (!value.is_null()) {
        RETURN_IF_ERROR(Read(NameOfPart(name, key), value, &is_on));
      }
      if (!is_on) continue;
      if (key == "json_object") {
        add("json_schema", kAnyObject);
      } else {
        add("whitespace", "\"none\"");
      }
    } else if (value.is_null()) {
      continue;
    } else if (key == "json") {
      std::string schema;
      RETURN_IF_ERROR(ReadSchemaText(NameOfPart(name, key), value, &schema));
      add("json_schema", schema);
    } else {
      add(key, value.text);
    }
  }
  kinds += "}";
  if (kinds == "{}") return absl::OkStatus();
  std::optional<ConstraintParams> constraint;
  RETURN_IF_ERROR(ReadConstraint(name, JsonText{kinds}, &constraint));
  return SetConstraint(name, json, std::move(constraint), draft);
}

absl::Status ReadFormat(std::string_view name, const std::string& path,
                        const JsonText& json, const Limits& limits,
                        CallDraft* draft) {
  if (!json.is_object()) return WrongType(path, "an object", json.text);
  RETURN_IF_ERROR(CheckElements(path, json, limits));
  Format format;
  RETURN_IF_ERROR(ReadFormatMembers(path, json, &format));
  const std::string type = NameOfPart(path, "type");
  if (format.type == "text") return absl::OkStatus();
  if (format.type == "json_object") {
    if (format.schema.empty()) format.schema = kAnyObject;
  } else if (format.type != "json_schema") {
    return InvalidField(
        FieldName{type},
        " must be \"text\", \"json_object\" or \"json_schema\"",
        Got(format.type.empty() ? "none" : ShownInQuotes(format.type)));
  }
  if (format.schema.empty()) {
    return InvalidField(FieldName{path}, " must have a schema",
                        Got(Shown(json.text)));
  }
  return SetConstraint(name, json,
                       ConstraintParams{.json_schema = format.schema}, draft);
}

absl::Status ReadResponseFormat(std::string_view name, const JsonText& json,
                                const Limits& limits, CallDraft* draft) {
  return ReadFormat(name, std::string(name), json, limits, draft);
}

absl::Status ReadJsonSchema(std::string_view name, const JsonText& json,
                            const Limits& limits, CallDraft* draft) {
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  std::string schema;
  RETURN_IF_ERROR(ReadSchemaText(name, json, &schema));
  return SetConstraint(
      name, json, ConstraintParams{.json_schema = std::move(schema)}, draft);
}

absl::Status ReadRegex(std::string_view name, const JsonText& json,
                       const Limits&, CallDraft* draft) {
  std::string regex;
  RETURN_IF_ERROR(Read(name, json, &regex));
  return SetConstraint(name, json, ConstraintParams{.regex = std::move(regex)},
                       draft);
}

absl::Status RefuseGuided(std::string_view name, const JsonText& json,
                          const Limits&, CallDraft*) {
  const std::string_view kind = name.substr(name.find('_') + 1);
  return InvalidField(FieldName{name},
                      " is not supported: it is structured_outputs with ", kind,
                      Got(Shown(json.text)));
}

}  // namespace espalier::openai
