// Metaspace: spaces written as a visible sign, "▁" as a rule, as tokenizer.json
// describes it, of a pre-tokenizer and of a decoder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/pipeline/json_fields.h"

namespace espalier {

enum class PrependScheme : uint8_t { kNever, kFirst, kAlways };

struct Metaspace {
  // Errors: kInvalidArgument naming the field and its value.
  static absl::StatusOr<Metaspace> Read(const JsonFields& fields);

  // Appends `piece` with signs for spaces, and with a sign in front if the
  // scheme requires one and it has none.
  void AppendReplaced(std::string_view piece, bool is_first,
                      std::string* out) const;

  std::string sign;  // one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool splits = true;  // in front of signs
};

}  // namespace espalier
