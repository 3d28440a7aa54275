// Suggests the closest known name for a misspelled one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

// Letters to insert, remove or change to make `b` of `a` (Levenshtein's
// distance). Takes a.size() * b.size() steps.
size_t EditDistance(std::string_view a, std::string_view b);

// A name as names are compared: in lower case, without dashes in front, "-"
// for "_".
std::string NormalizeName(std::string_view name);

// Of `names` the one that `word` was probably meant to be: a few letters differ
// (Levenshtein's distance), or it is a part of the name, which counts as one
// letter; of names that are equally near one that is no part, else the first.
// "" if none is near.
std::string ClosestName(std::string_view word,
                        std::span<const std::string_view> names);

// "; did you mean num_beams?", or "" if no name is near.
std::string DidYouMean(std::string_view word,
                       std::span<const std::string_view> names);

}  // namespace espalier
