// OnigurumaReader: a place in a pattern of Oniguruma, and the escapes there, as
// PCRE2 writes them. The part of OnigurumaToPcre2 (regex_syntax.h) that reads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace espalier {

// \w: characters of a class, without its brackets.
inline constexpr char kWordCharacters[] =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
// \w inside of a class, where Oniguruma does not use its Latin-1 table, the
// only one that has ², ³, ¹, ¼, ½ and ¾.
inline constexpr char kWordCharactersInClass[] =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class OnigurumaReader {
 public:
  // `pattern` is UTF-8 and outlives this.
  explicit OnigurumaReader(std::string_view pattern) : pattern_(pattern) {}

 protected:
  // Returns an error for the unsupported construct at this place.
  absl::Status Unsupported(std::string_view what) const;

  // Returns true and moves past `text` if it is next.
  bool Take(std::string_view text);

  // Returns the characters of an escape that is a class, without brackets, and
  // moves past it; empty if it is none. `word_characters` are those of \w.
  absl::StatusOr<std::string> TakeClassEscape(std::string_view word_characters,
                                              bool* is_negated);

  // Returns the character that an escape stands for, and moves past it.
  absl::StatusOr<std::string> TakeCharacterEscape();

  const std::string_view pattern_;
  size_t at_ = 0;

 private:
  absl::StatusOr<std::string> TakeProperty();
  absl::StatusOr<std::string> TakeHexEscape();
};

}  // namespace espalier
