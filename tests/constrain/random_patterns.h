// Random regular expressions and texts over a small alphabet.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::testing {

// Returns a pattern of the letters "abc" in the common syntax of std::regex and
// CompileRegex, of up to about `size` atoms.
std::string RandomPattern(int size, std::mt19937_64& random);

// Returns all texts of at most `max_length` characters of `alphabet`.
std::vector<std::string> AllTexts(std::string_view alphabet, int max_length);

}  // namespace espalier::testing
