// TextPattern: the "pattern" of a Split or a Replace in tokenizer.json: a text
// that is looked for as it stands ({"String": ...}), or a regular expression
// ({"Regex": ...}).
//
// Thread safety: constant after Read; any thread may then search.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "text/pipeline/json_fields.h"
#include "text/regex/regex.h"

namespace espalier {

class TextPattern {
 public:
  // The field "pattern" of `fields`.
  // Errors: kInvalidArgument naming it and its value.
  static absl::StatusOr<TextPattern> Read(const JsonFields& fields);

  // As Regex::ForEachMatch. Errors name the pattern's place in the file.
  template <typename OnMatch>
  absl::Status ForEachMatch(std::string_view text, RegexBudget* budget,
                            const OnMatch& on_match) const {
    if (regex_ != nullptr) {
      const absl::Status status = regex_->ForEachMatch(text, budget, on_match);
      return status.ok() ? status : Annotate(status, place_);
    }
    for (size_t at = FindLiteral(text, 0); at != std::string_view::npos;) {
      on_match(Regex::Match{at, at + literal_.size()});
      at = FindLiteral(text, at + literal_.size());
    }
    return absl::OkStatus();
  }

 private:
  TextPattern() = default;

  // Returns the first literal_ from `begin` on, or npos, in linear time.
  size_t FindLiteral(std::string_view text, size_t begin) const;

  std::string place_;
  std::string literal_;                 // not empty without regex_
  std::shared_ptr<const Regex> regex_;  // shared by copies; or null
};

}  // namespace espalier
