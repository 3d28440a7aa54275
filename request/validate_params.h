// The parts of ValidateParams (generation_params.h), by concept and in the
// order in which they run: a part may rely on those before it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "exec_request/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// How many sequences there are and how they go on: beams, samples, groups,
// stochastic beams, when a search may end.
absl::Status ValidateSearch(const ModelDescription& model,
                            const GenerationParams& params);

// What a token is drawn by.
absl::Status ValidateSampling(const GenerationParams& params);

// What the decoder of an encoder-decoder begins with.
absl::Status ValidateDecoderPrompt(const ModelDescription& model,
                                   const GenerationParams& params);

// Sets max_new_tokens if unset.
absl::Status ValidateLengths(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             GenerationParams* params);

// Penalties on scores, the length penalty included.
absl::Status ValidatePenalties(const GenerationParams& params);

// What ends a sequence. Sets eos_token_id if unset; ids become sets, ascending
// and each once.
absl::Status ValidateStops(const ModelDescription& model,
                           GenerationParams* params);

// Which tokens may appear. Puts biases into ascending order; lists become
// sets, ascending and each once, but for allowed_sequences, which
// beam/strategy/allowed_sequence_trie.h makes a trie of.
absl::Status ValidateConstraints(const ModelDescription& model,
                                 GenerationParams* params);

// That no score comes out of all that as infinite or no number, as long as the
// model's own are numbers.
absl::Status ValidateScores(const GenerationParams& params);

// What is reported beside the hypotheses, or in place of them.
absl::Status ValidateReports(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             const GenerationParams& params);

// What an executor can do only where it selects on the host.
absl::Status ValidateHostSelection(const ModelDescription& model,
                                   const GenerationParams& params);

// That lists of tokens are not empty, and their tokens in [0, vocab_size).
absl::Status CheckSequences(std::string_view field,
                            const std::vector<std::vector<int64_t>>& sequences,
                            int vocab_size);

// What drafts tokens, and how many.
absl::Status ValidateSpeculation(const ModelDescription& model,
                                 const GenerationParams& params);

// When it ends, what it shares with other requests, and its turn among them.
absl::Status ValidateScheduling(const GenerationParams& params);

}  // namespace espalier
