// Normalizer: the "normalizer" of tokenizer.json, a list of steps that rewrite
// a text before it is split into pieces.
//
// Files need not be trusted: a step that doubles a text is harmless, thirty of
// them are not. So a text may grow to 32 times its bytes and 1 KiB, far more
// than any script's normal forms need (11 times).
//
// Thread safety: constant after Read; any thread may then call Apply.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/regex/regex_budget.h"

namespace espalier {

class Normalizer {
 public:
  struct Text {
    // `regex_budget` outlives this.
    Text(std::string_view original, RegexBudget* regex_budget);

    std::string text;
    // Length of the prefix that the first character of the original text
    // became: pre-tokenizers test if any of it is left. Always ends at a
    // character, before and after each step.
    size_t beginning;
    // Limit on the size of `text`; less than 2^31.
    size_t max_bytes;
    RegexBudget* budget;
  };

  // None: text stays what it is.
  Normalizer() = default;

  // Reads `value`, at `place` of a tokenizer.json; null has no steps.
  // Errors: kInvalidArgument naming the field and its value.
  static absl::StatusOr<Normalizer> Read(const json::value& value,
                                         const std::string& place);

  bool empty() const { return steps_.empty(); }

  // REQUIRES: UTF-8.
  // Errors: as Regex::ForEachMatch, naming the field of the pattern;
  // kInvalidArgument naming the step after which the text is too large.
  absl::Status Apply(Text* text) const;

 private:
  struct Step {
    std::string place;  // in the file
    std::function<absl::Status(Text*)> run;
  };
  friend class NormalizerReader;

  std::vector<Step> steps_;
};

}  // namespace espalier
