// Suggests the closest known name for a misspelled one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

// Returns the Levenshtein distance of `a` and `b`. Takes a.size() * b.size()
// steps.
size_t EditDistance(std::string_view a, std::string_view b);

// Normalises a name for comparison: lower case, no leading dashes, "-" for "_".
std::string NormalizeName(std::string_view name);

// Returns the name that `word` probably stands for: it differs by a few letters
// (Levenshtein distance), or contains `word`, which counts as one letter. Ties
// go to a name that does not contain `word`, then to the first. "" if no name
// is close.
std::string ClosestName(std::string_view word,
                        std::span<const std::string_view> names);

// Returns "; did you mean num_beams?", or "" if no name is close.
std::string DidYouMean(std::string_view word,
                       std::span<const std::string_view> names);

}  // namespace espalier
