#include "text/text_pattern.h"

#include <utility>

namespace espalier {

absl::StatusOr<TextPattern> TextPattern::Read(const JsonFields& fields) {
  const json::value* value = fields.Find("pattern");
  if (value == nullptr) {
    return fields.Wrong("pattern", "{\"String\": ...} or {\"Regex\": ...}");
  }
  ASSIGN_OR_RETURN(const JsonFields kind,
                   JsonFields::Of(*value, fields.Place("pattern")));
  RETURN_IF_ERROR(kind.CheckKnown({"String", "Regex"}));
  if (value->get_object().size() != 1) {
    return fields.Wrong("pattern", "{\"String\": ...} or {\"Regex\": ...}");
  }
  TextPattern pattern;
  if (kind.Find("String") != nullptr) {
    pattern.place_ = kind.Place("String");
    ASSIGN_OR_RETURN(pattern.literal_, kind.String("String"));
    if (pattern.literal_.empty()) {
      return kind.Wrong("String", "a string that is not empty");
    }
    return pattern;
  }
  pattern.place_ = kind.Place("Regex");
  ASSIGN_OR_RETURN(const std::string text, kind.String("Regex"));
  absl::StatusOr<Regex> regex = Regex::Compile(text);
  if (!regex.ok()) return kind.WrongAs("Regex", regex.status());
  pattern.regex_ = std::make_shared<const Regex>(*std::move(regex));
  return pattern;
}

}  // namespace espalier
