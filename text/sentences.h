// Splits a text into sentences, for models that translate one at a time.
//
//   for (const Sentence& sentence : SplitSentences("Mr. Li left. It rains."))
//     ...  // "Mr. Li left.", "It rains."
//
// The rules are those of Unicode Standard Annex #29, but for these:
//
//   abbreviations of European languages, initials and ordinals ("Dr. Jones",
//   "J. R. R. Tolkien", "No. 5") end no sentence
//   . ! and ? end one only before white space; the full stops of Chinese and
//   Japanese need none
//   what a quotation ends with (? ! ."), ends none before a lower-case word
//   what has no letter yet ("1.", "...") belongs to what follows it
//
// A line break ends a sentence always. ICU's rules with CLDR's suppressions
// break after "Dr." and initials, and take 35 MB of libraries.
//
// Thread safety: a function without state.
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace espalier {

struct Sentence {
  std::string_view text;   // without white space around it; not empty
  std::string_view after;  // white space up to the next; empty after the last
};

// Views of `text`; none if it is blank. After `max_sentences` the rest is left
// out. Takes linear time.
// REQUIRES: well-formed UTF-8.
std::vector<Sentence> SplitSentences(
    std::string_view text,
    size_t max_sentences = std::numeric_limits<size_t>::max());

}  // namespace espalier
