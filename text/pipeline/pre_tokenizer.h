// PreTokenizer: the "pre_tokenizer" of tokenizer.json, which splits a
// normalized text into the model's pieces: a list of steps, each of which
// splits every piece further, or rewrites it (a space as "▁").
//
// Thread safety: constant after Read; any thread may then call Apply.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/regex/regex_budget.h"

namespace espalier {

class PreTokenizer {
 public:
  struct Span {
    uint32_t begin;
    uint32_t end;
  };

  // The pieces of a text. Not copied: `text` may lie in `rewritten`.
  struct Pieces {
    Pieces() = default;
    Pieces(const Pieces&) = delete;
    Pieces& operator=(const Pieces&) = delete;

    std::string_view text;
    std::vector<Span> spans;  // in `text`; none is empty
    // True if `text` starts the caller's text.
    bool is_beginning = true;
    std::string rewritten;
    std::vector<Span> scratch;
    size_t max_bytes = 0;  // that steps may make of `text`
    RegexBudget* budget = nullptr;
  };

  // None: a text is one piece.
  PreTokenizer() = default;

  // Reads `value`, at `place` of a tokenizer.json; null has no steps.
  // Errors: kInvalidArgument naming the field and its value.
  static absl::StatusOr<PreTokenizer> Read(const json::value& value,
                                           const std::string& place);

  // True if the model's vocabulary spells bytes (text/pipeline/byte_level.h).
  // The pieces are raw bytes.
  bool is_byte_level() const { return is_byte_level_; }

  // Cuts pieces->text, which stays where it is, into pieces->spans.
  // REQUIRES: UTF-8 of less than 2^31 bytes; a budget.
  // Errors: as Regex::ForEachMatch, naming the field of the pattern;
  // kInvalidArgument naming the step that makes more than 32 times the bytes
  // and 1 KiB of a text, or 2^31.
  absl::Status Apply(Pieces* pieces) const;

 private:
  struct Step {
    std::string place;  // in the file
    std::function<absl::Status(Pieces*)> run;
  };
  friend class PreTokenizerReader;

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

}  // namespace espalier
