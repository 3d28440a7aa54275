// The messages of errors, told in the words of who gave what is wrong: the
// engine says num_beams, and its user typed --num-beams or n.
//
// Thread safety: functions without state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace espalier {

// Bytes of what `message` begins with: a value in quotes, with its escapes; or
// a word of letters, digits and underscores; or another character.
// REQUIRES: `message` is not empty.
size_t FirstPartLength(std::string_view message);

// `message` with `name` in place of the word `word`, but in quotes, where a
// value stands: "max_new_tokens must be 1" becomes "max_tokens must be 1".
std::string RenameWord(std::string_view message, std::string_view word,
                       std::string_view name);

}  // namespace espalier
