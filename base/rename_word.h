// Translates error messages to the caller's names: the engine's num_beams is
// --num-beams on the command line and n in the HTTP API.
//
// Thread safety: functions without state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace espalier {

// Returns the length in bytes of the first part of `message`: a value in
// quotes, with its escapes; or a word of letters, digits and underscores; or
// another character. REQUIRES: `message` is not empty.
size_t FirstPartLength(std::string_view message);

// Returns `message` with `name` in place of the word `word`, except in quotes,
// which hold values: "max_new_tokens must be 1" becomes "max_tokens must be 1".
std::string RenameWord(std::string_view message, std::string_view word,
                       std::string_view name);

}  // namespace espalier
