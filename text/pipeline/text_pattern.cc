#include "text/pipeline/text_pattern.h"

#include <cstring>
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

size_t TextPattern::FindLiteral(std::string_view text, size_t begin) const {
  // std::string_view's takes the product of both lengths.
  const void* const found = memmem(text.data() + begin, text.size() - begin,
                                   literal_.data(), literal_.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<const char*>(found) - text.data();
}

}  // namespace espalier
