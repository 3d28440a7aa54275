#include "openai/read_constraint.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/spelling.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "request/constraint_params.h"
#include "request/read_constraint.h"
#include "request/read_json.h"
#include "request/read_json_text.h"

namespace espalier::openai {
namespace {

constexpr std::string_view kConstraintParam = "constraint";
constexpr std::string_view kAnyObject = R"({"type":"object"})";

// Members of vLLM's structured_outputs.
constexpr std::string_view kStructuralTag = "structural_tag";
constexpr std::string_view kNoWhitespace = "disable_any_whitespace";
constexpr std::string_view kWhitespacePattern = "whitespace_pattern";
constexpr std::string_view kClosedObjects = "disable_additional_properties";
constexpr std::array<std::string_view, 8> kOutputs = {
    "json",        "json_object",      "regex",       "choice", "grammar",
    kNoWhitespace, kWhitespacePattern, kClosedObjects};

// Sets the constraint, given by the field `name`.
//   path  name of the language in the call: "structured_outputs.regex"
absl::Status SetConstraint(std::string_view name, std::string path,
                           const JsonText& json, ConstraintParams constraint,
                           CallDraft* draft) {
  Call& call = draft->call;
  if (call.Gives(kConstraintParam)) {
    return InvalidField(
        FieldName{call.NameOf(kConstraintParam)}, " and ", FieldName{name},
        " both say what the text of the answer is", Got(Shown(json.text)));
  }
  call.params.constraint = std::move(constraint);
  call.constraint_path = std::move(path);
  MarkGiven(kConstraintParam, name, draft);
  return absl::OkStatus();
}

// Sets `*out` to the text of a schema: an object, a boolean, or a string that
// has one.
absl::Status ReadSchemaText(std::string_view name, const JsonText& json,
                            std::string* out) {
  std::string text(json.text);
  if (json.text.starts_with('"')) text = Unquoted(json.text);
  const absl::StatusOr<json::value> schema = ParseJson(text);
  if (!schema.ok()) {
    return InvalidField(FieldName{name},
                        " must be a JSON Schema: ", Message(schema.status()));
  }
  if (!schema->is_object() && !schema->is_bool()) {
    return WrongType(name, "an object, a boolean, or a string with one of them",
                     json.text);
  }
  *out = std::move(text);
  return absl::OkStatus();
}

// A constraint, and the member of an object that has its language.
struct Language {
  ConstraintParams params = {};
  std::string key = {};  // empty: there is none
};

// Reads a member of structured_outputs that is not null.
//   name  of structured_outputs
absl::Status ReadOutput(std::string_view name, const std::string& key,
                        const JsonText& json, Language* language) {
  const std::string member = NameOfPart(name, key);
  ConstraintParams& params = language->params;
  bool is_on = true;  // false: as if it were not there
  if (key == "regex") {
    RETURN_IF_ERROR(Read(member, json, &params.regex));
  } else if (key == "grammar") {
    RETURN_IF_ERROR(Read(member, json, &params.grammar));
  } else if (key == "choice") {
    RETURN_IF_ERROR(Read(member, json, &params.choice));
  } else if (key == "json") {
    RETURN_IF_ERROR(
        ReadSchemaText(member, json, &params.json_schema.emplace()));
  } else if (key == "json_object") {
    RETURN_IF_ERROR(Read(member, json, &is_on));
    if (is_on) params.json_schema = kAnyObject;
  } else if (key == kNoWhitespace) {
    RETURN_IF_ERROR(Read(member, json, &is_on));
    params.has_spaces = !is_on;
    is_on = false;
  } else if (key == kWhitespacePattern) {
    std::string pattern;
    RETURN_IF_ERROR(Read(member, json, &pattern));
    RETURN_IF_ERROR(CheckWhitespace(member, pattern));
    params.whitespace = std::move(pattern);
    is_on = false;
  } else if (key == kClosedObjects) {
    RETURN_IF_ERROR(Read(member, json, &params.disable_additional_properties));
    is_on = false;
  } else {
    return InvalidField(FieldName{name}, " must have no field ",
                        ShownInQuotes(key), DidYouMean(key, kOutputs));
  }
  if (!is_on) return absl::OkStatus();
  if (!language->key.empty() && language->key != key) {
    return InvalidField(FieldName{name}, " must have one kind of language",
                        Got(language->key, " and ", key));
  }
  language->key = key;
  return absl::OkStatus();
}

// Checks the options of schemas.
//   name  of structured_outputs
absl::Status CheckSchemaOptions(std::string_view name,
                                const ConstraintParams& params) {
  const auto refuse = [&](std::string_view key, std::string_view why,
                          std::string_view value) {
    return InvalidField(FieldName{NameOfPart(name, key)}, " must be unset with",
                        why, Got(value));
  };
  if (params.whitespace && !params.has_spaces) {
    return refuse(kWhitespacePattern, Concat(" ", kNoWhitespace),
                  ShownInQuotes(*params.whitespace));
  }
  if (params.json_schema) return absl::OkStatus();
  constexpr std::string_view kWithoutSchema = "out json or json_object";
  if (params.whitespace) {
    return refuse(kWhitespacePattern, kWithoutSchema,
                  ShownInQuotes(*params.whitespace));
  }
  if (!params.has_spaces) return refuse(kNoWhitespace, kWithoutSchema, "true");
  if (!params.disable_additional_properties) return absl::OkStatus();
  return refuse(kClosedObjects, kWithoutSchema, "true");
}

// The members of a response_format.
struct Format {
  std::string type = {};
  std::string schema = {};  // empty: there is none
  std::string path = {};    // name of the schema
};

// `json` is the format, or its member json_schema.
absl::Status ReadFormatMembers(const std::string& path, const JsonText& json,
                               Format* format) {
  const bool is_outer = !path.ends_with(".json_schema");
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = {items.value()};
    const std::string key = Unquoted(items.key());
    const std::string member = NameOfPart(path, key);
    if (value.is_null()) continue;
    if (key == "schema") {
      if (!format->path.empty() && format->path != member) {
        return InvalidField(FieldName{member}, " must be unset with ",
                            FieldName{format->path}, Got(Shown(value.text)));
      }
      RETURN_IF_ERROR(ReadSchemaText(member, value, &format->schema));
      format->path = member;
    } else if (key == "strict") {
      bool strict = false;
      RETURN_IF_ERROR(Read(member, value, &strict));
    } else if (key == "name" || key == "description") {
      std::string text;
      RETURN_IF_ERROR(Read(member, value, &text));
    } else if (key == "type" && is_outer) {
      RETURN_IF_ERROR(Read(member, value, &format->type));
    } else if (key == "json_schema" && is_outer) {
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
  Language language;
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = {items.value()};
    const std::string key = Unquoted(items.key());
    if (value.is_null()) continue;
    if (key != kStructuralTag) {
      RETURN_IF_ERROR(ReadOutput(name, key, value, &language));
    } else if (value.text != "false") {
      return InvalidField(FieldName{NameOfPart(name, key)},
                          " is not supported: structured_outputs has json, "
                          "json_object, regex, choice or grammar",
                          Got(Shown(value.text)));
    }
  }
  RETURN_IF_ERROR(CheckSchemaOptions(name, language.params));
  if (language.key.empty()) return absl::OkStatus();
  return SetConstraint(name, NameOfPart(name, language.key), json,
                       std::move(language.params), draft);
}

absl::Status ReadFormat(std::string_view name, const std::string& path,
                        const JsonText& json, const Limits& limits,
                        CallDraft* draft) {
  if (!json.is_object()) return WrongType(path, "an object", json.text);
  RETURN_IF_ERROR(CheckElements(path, json, limits));
  Format format;
  RETURN_IF_ERROR(ReadFormatMembers(path, json, &format));
  if (format.type == "text") {
    if (!format.path.empty()) {
      return InvalidField(FieldName{format.path},
                          " must be unset with the type \"text\"",
                          Got(Shown(format.schema)));
    }
    draft->unconstrained_by = name;
    return absl::OkStatus();
  }
  if (format.type == "json_object") {
    if (format.schema.empty()) format.schema = kAnyObject;
  } else if (format.type != "json_schema") {
    return InvalidField(
        FieldName{NameOfPart(path, "type")},
        " must be \"text\", \"json_object\" or \"json_schema\"",
        Got(format.type.empty() ? "none" : ShownInQuotes(format.type)));
  }
  if (format.schema.empty()) {
    return InvalidField(FieldName{path}, " must have a schema",
                        Got(Shown(json.text)));
  }
  return SetConstraint(
      name, format.path.empty() ? path : std::move(format.path), json,
      ConstraintParams{.json_schema = std::move(format.schema)}, draft);
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
  return SetConstraint(name, std::string(name), json,
                       ConstraintParams{.json_schema = std::move(schema)},
                       draft);
}

absl::Status ReadRegex(std::string_view name, const JsonText& json,
                       const Limits&, CallDraft* draft) {
  std::string regex;
  RETURN_IF_ERROR(Read(name, json, &regex));
  return SetConstraint(name, std::string(name), json,
                       ConstraintParams{.regex = std::move(regex)}, draft);
}

absl::Status ReadGrammar(std::string_view name, const JsonText& json,
                         const Limits&, CallDraft* draft) {
  std::string grammar;
  RETURN_IF_ERROR(Read(name, json, &grammar));
  return SetConstraint(name, std::string(name), json,
                       ConstraintParams{.grammar = std::move(grammar)}, draft);
}

absl::Status RefuseGuided(std::string_view name, const JsonText& json,
                          const Limits&, CallDraft*) {
  const std::string_view kind = name.substr(name.find('_') + 1);
  return InvalidField(FieldName{name},
                      " is not supported: it is structured_outputs with ", kind,
                      Got(Shown(json.text)));
}

}  // namespace espalier::openai
