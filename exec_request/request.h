// Request and Result: what goes into an engine and what comes out, as values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "exec_request/generation_params.h"

namespace espalier {

struct Request {
  // Used exactly as given: no BOS is added. At least one token.
  std::vector<TokenId> prompt_tokens;
  GenerationParams params;
};

enum class FinishReason { kEos, kLength };

// A finished sequence.
struct Hypothesis {
  std::vector<TokenId> tokens;  // generated ones, an ending EOS included
  // Beams: cum_log_prob / tokens.size()^length_penalty. Greedy: the mean
  // log-probability. Higher is better.
  float score = 0;
  // Nats. Beams: after score processors. Greedy: the model's own.
  float cum_log_prob = 0;
  FinishReason finish_reason = FinishReason::kLength;
};

// What a request cost.
struct Usage {
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;     // of the prompt, not computed again
  int64_t num_generated_tokens = 0;  // in the hypotheses returned
  int64_t num_steps = 0;             // decode steps, the first one included
};

struct Result {
  // Best first, at most num_return_sequences. Fewer only where score
  // processors leave fewer possible.
  std::vector<Hypothesis> hypotheses;
  Usage usage;
};

// Checks a request against `model` and fills in defaults. Nothing is held
// before this has passed.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateRequest(const ModelDescription& model, Request* request);

}  // namespace espalier
