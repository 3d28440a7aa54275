// Checks of the options that name tokens: those that end a sequence
// (ValidateStops), and those that ban, favour or allow tokens
// (ValidateConstraints). Lists that several requests share (base/shared_list.h)
// are checked once for all of them, and made ascending sets in place.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "base/shared_list.h"
#include "request/generation_params.h"

namespace espalier {

// Sets eos_token_id if unset; lists of ids become ascending sets.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateStops(const ModelDescription& model,
                           GenerationParams* params);

// Sorts biases; lists become ascending sets, except allowed_sequences, which
// beam/strategy/allowed_sequences.h makes a trie of.
// REQUIRES: ValidateStops has accepted `params`; max_new_tokens is set.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateConstraints(const ModelDescription& model,
                                 GenerationParams* params);

// Checks that lists of tokens are not empty, and their tokens in [0,
// vocab_size).
absl::Status CheckSequences(std::string_view field,
                            const std::vector<std::vector<int64_t>>& sequences,
                            int vocab_size);

// Returns the tokens of the longest sequence; 0 if there is none. Computed once
// for all copies of a list.
int64_t LengthOfLongest(const SharedList<std::vector<int64_t>>& sequences);

}  // namespace espalier
