// Words that may not be generated, given as text
// (GenerationParams::bad_words), become sequences of tokens
// (GenerationParams::bad_words_ids), which are what is banned.
//
// A tokenizer spells a word in one way where a text begins, and in another
// after a space: "York" and "▁York", or several tokens and one. So each word
// is banned in both forms, encoded by itself without the tokenizer's special
// tokens, in the pieces that the model writes (Tokenizer::EncodeOutput). The
// second is left out where it ends in the first, which bans it already: where
// both are the same, or where the space is a token of its own.
// Spaces that a word begins with are dropped first: " York" is "York".
//
// The name and the two forms are vLLM's, which leaves the second one out more
// often: unless it has as many tokens as the first, and another one in front.
// It then generates " York" where that is one token and "York" is two.
//
// What is banned is how the tokenizer spells a word, as with bad_words_ids: not
// the same letters out of other tokens, nor within a longer word or right
// after other characters, as "ban" is in "urban".
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "request/generation_params.h"

namespace espalier {

class Tokenizer;

// More than lists of swear words have; to encode as many bytes takes some
// milliseconds.
inline constexpr size_t kMaxBadWords = 4096;
inline constexpr size_t kMaxBadWordBytes = size_t{1} << 16;  // in total

// Checks the limits on the words; needs no tokenizer.
// Errors: kInvalidArgument naming the limit, or the first word that is empty,
// blank or not UTF-8.
absl::Status CheckBadWords(const std::vector<std::string>& words);

// Moves `bad_words` into `bad_words_ids`, where they come last.
// Errors: as CheckBadWords; kInvalidArgument if there are words and `tokenizer`
// is null, or naming the first word that has no tokens. `*params` is unchanged
// on error.
absl::Status ResolveBadWords(const Tokenizer* tokenizer,
                             GenerationParams* params);

// Returns the error of a request that has bad_words when no tokenizer can
// encode them.
// REQUIRES: bad_words is not empty.
absl::Status NoTokensOfBadWords(const GenerationParams& params);

}  // namespace espalier
