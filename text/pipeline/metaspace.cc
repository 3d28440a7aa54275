#include "text/pipeline/metaspace.h"

#include "base/status.h"
#include "text/pipeline/unicode.h"

namespace espalier {

absl::StatusOr<Metaspace> Metaspace::Read(const JsonFields& fields) {
  RETURN_IF_ERROR(fields.CheckKnown({"type", "replacement", "add_prefix_space",
                                     "prepend_scheme", "split", "str_rep"}));
  Metaspace metaspace;
  ASSIGN_OR_RETURN(metaspace.sign, fields.String("replacement"));
  if (metaspace.sign.empty() ||
      CharacterSize(metaspace.sign.front()) != metaspace.sign.size()) {
    return fields.Wrong("replacement", "one character");
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> scheme,
                   fields.OptionalString("prepend_scheme"));
  if (scheme == "never") metaspace.scheme = PrependScheme::kNever;
  if (scheme == "first") metaspace.scheme = PrependScheme::kFirst;
  const bool is_known =
      !scheme || scheme == "always" || scheme == "first" || scheme == "never";
  if (!is_known)
    return fields.Wrong("prepend_scheme", "always, first or never");
  // Files of before 2024 have this field instead.
  ASSIGN_OR_RETURN(const bool adds_space,
                   fields.Bool("add_prefix_space", true));
  if (!adds_space) {
    if (scheme && scheme != "never") {
      return fields.Wrong("add_prefix_space", "true beside prepend_scheme");
    }
    metaspace.scheme = PrependScheme::kNever;
  }
  ASSIGN_OR_RETURN(metaspace.splits, fields.Bool("split", true));
  return metaspace;
}

void Metaspace::AppendReplaced(std::string_view piece, bool is_first,
                               std::string* out) const {
  const bool wants_sign = scheme == PrependScheme::kAlways ||
                          (scheme == PrependScheme::kFirst && is_first);
  if (wants_sign && !piece.starts_with(' ') && !piece.starts_with(sign)) {
    *out += sign;
  }
  for (const char byte : piece) {
    if (byte == ' ') {
      *out += sign;
    } else {
      *out += byte;
    }
  }
}

}  // namespace espalier
