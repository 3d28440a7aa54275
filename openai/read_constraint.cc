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

// Other members of vLLM's structured_outputs.
constexpr std::string_view kOtherOutputs[] = {"json",
                                              "json_object",
                                              "grammar",
                                              "structural_tag",
                                              "disable_any_whitespace",
                                              "disable_additional_properties",
                                              "whitespace_pattern"};

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

}  // namespace

absl::Status ReadStructuredOutputs(std::string_view name, const JsonText& json,
                                   const Limits& limits, CallDraft* draft) {
  if (!json.is_object()) return WrongType(name, "an object", json.text);
  RETURN_IF_ERROR(CheckElements(name, json, limits));
  std::string kinds = "{";  // those that are not refused
  for (JsonItems items(json.text); items.Next();) {
    const JsonText value = {items.value()};
    const std::string key = Unquoted(items.key());
    if (std::ranges::find(kOtherOutputs, key) == std::end(kOtherOutputs)) {
      if (value.is_null()) continue;
      if (kinds.size() > 1) kinds += ", ";
      kinds += Concat(items.key(), ": ", value.text);
    } else if (!value.is_null() && value.text != "false") {
      return InvalidField(FieldName{NameOfPart(name, key)},
                          " is not supported: structured_outputs has regex or "
                          "choice",
                          Got(Shown(value.text)));
    }
  }
  kinds += "}";
  if (kinds == "{}") return absl::OkStatus();
  std::optional<ConstraintParams> constraint;
  RETURN_IF_ERROR(ReadConstraint(name, JsonText{kinds}, &constraint));
  return SetConstraint(name, json, std::move(constraint), draft);
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
