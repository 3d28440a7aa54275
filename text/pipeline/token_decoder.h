// TokenDecoder: the "decoder" of a tokenizer.json, which converts tokens to
// text. Its steps are defined on lists of tokens; here each is applied to a
// single token, so that text can be decoded token by token. Steps for which
// that would give another result are refused.
//
// Thread safety: constant after Read; any thread may then call Spell.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/pipeline/token_spellings.h"
#include "text/regex/regex_budget.h"

namespace espalier {

class TokenDecoder {
 public:
  static constexpr size_t kMaxBytes = 65536;

  struct Spelling {
    SpellingKind kind;  // kText or kBytes
    std::string text;

    bool operator==(const Spelling&) const = default;
  };

  // Reads `value`, at `place` of a tokenizer.json. Null puts a space between
  // tokens.
  // Errors: kInvalidArgument naming the field and its value.
  static absl::StatusOr<TokenDecoder> Read(const json::value& value,
                                           const std::string& place);

  // Returns the text of `piece` as the first token of a text, or as a later
  // one.
  // Errors: as Regex::ForEachMatch, naming the field of the pattern;
  // kInvalidArgument naming the step that makes more than kMaxBytes of it.
  absl::StatusOr<Spelling> Spell(std::string_view piece, bool is_first,
                                 RegexBudget* budget) const;

  BrokenCharacters broken_characters() const { return broken_; }

 private:
  struct Piece {
    std::string text;
    bool is_bytes = false;
    bool is_first = false;
    RegexBudget* budget = nullptr;
  };
  struct Step {
    std::string place;  // in the file
    std::function<absl::Status(Piece*)> run;
  };
  friend class TokenDecoderReader;

  std::vector<Step> steps_;
  BrokenCharacters broken_ = BrokenCharacters::kEachByte;
};

}  // namespace espalier
