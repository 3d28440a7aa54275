// The parts of ValidateParams (generation_params.h), by concept and in the
// order in which they run: a part may rely on those before it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Checks the number and kind of sequences: beams, samples, groups, stochastic
// beams, and when a search may end.
absl::Status ValidateSearch(const ModelDescription& model,
                            const GenerationParams& params);

// Checks sampling options: temperature and filters.
absl::Status ValidateSampling(const GenerationParams& params);

// Checks the tokens that the decoder begins with.
absl::Status ValidateDecoderPrompt(const ModelDescription& model,
                                   const GenerationParams& params);

// Sets max_new_tokens if unset.
absl::Status ValidateLengths(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             GenerationParams* params);

// Penalties on scores, the length penalty included.
absl::Status ValidatePenalties(const GenerationParams& params);

// Checks the stop conditions. Sets eos_token_id if unset; lists of ids become
// ascending sets.
absl::Status ValidateStops(const ModelDescription& model,
                           GenerationParams* params);

// Checks the options that ban or favour tokens. Sorts biases; lists become
// ascending sets, except allowed_sequences, which
// beam/strategy/allowed_sequences.h makes a trie of.
absl::Status ValidateConstraints(const ModelDescription& model,
                                 GenerationParams* params);

// Checks that no combination of these options makes a score infinite or NaN,
// given finite logits.
absl::Status ValidateScores(const GenerationParams& params);

// Checks the options that report log-probabilities.
absl::Status ValidateReports(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             const GenerationParams& params);

// Checks options that require an executor that selects on the host.
absl::Status ValidateHostSelection(const ModelDescription& model,
                                   const GenerationParams& params);

// Checks that lists of tokens are not empty, and their tokens in [0,
// vocab_size).
absl::Status CheckSequences(std::string_view field,
                            const std::vector<std::vector<int64_t>>& sequences,
                            int vocab_size);

// Checks the draft method and the number of draft tokens.
absl::Status ValidateSpeculation(const ModelDescription& model,
                                 const GenerationParams& params);

// Checks the deadline, the prefix cache's salt, the priority and the tenant.
absl::Status ValidateScheduling(const GenerationParams& params);

}  // namespace espalier
