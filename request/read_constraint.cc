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

namespace espalier {
namespace {

constexpr std::string_view kWanted =
    "an object with regex, a string, or choice, a list of strings";
constexpr std::array<std::string_view, 2> kKinds = {"regex", "choice"};

absl::Status SetKind(std::string_view field, std::string_view key,
                     const JsonText& json, ConstraintParams* params) {
  const std::string name = NameOfPart(field, key);
  if (key == "regex") return Read(name, json, &params->regex);
  if (key == "choice") return Read(name, json, &params->choice);
  return InvalidField(FieldName{field}, " must have no field ",
                      ShownInQuotes(key), DidYouMean(key, kKinds));
}

}  // namespace

absl::Status ReadConstraint(std::string_view field, const JsonText& json,
                            std::optional<ConstraintParams>* out) {
  if (!json.is_object()) return WrongType(field, kWanted, json.text);
  ConstraintParams params;
  std::string first;  // the kind that was given
  for (JsonItems items(json.text); items.Next();) {
    const std::string key = Unquoted(items.key());
    const JsonText value = {items.value()};
    if (value.is_null()) continue;
    RETURN_IF_ERROR(SetKind(field, key, value, &params));
    if (!first.empty() && first != key) {
      return InvalidField(FieldName{field}, " must have one kind of language",
                          Got(first, " and ", key));
    }
    first = key;
  }
  if (first.empty()) return WrongType(field, kWanted, json.text);
  *out = std::move(params);
  return absl::OkStatus();
}

}  // namespace espalier
