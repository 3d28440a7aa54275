// Request and Result: what goes into an engine and what comes out, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/token_log_prob.h"
#include "exec_request/model_description.h"
#include "request/generation_params.h"

namespace espalier {

struct Request {
  // Used exactly as given: no BOS is added. At least one token.
  std::vector<TokenId> prompt_tokens;
  GenerationParams params;
  // Texts continue that of so many tokens at the prompt's end; 0: they are
  // texts of their own, answers. Unset: all of them. With an encoder they
  // continue the decoder prompt.
  std::optional<int64_t> num_continued = {};
  // What its caller knows it by, for traces; empty: by nothing.
  std::string caller_id = {};
  // What is to be scored after the prompt (with an encoder: after what the
  // decoder begins with), in place of anything that is generated; none empty,
  // at most kMaxScoredTokens tokens together. Beginnings that several share are
  // computed once. Empty: the request generates.
  std::vector<std::vector<int64_t>> continuations = {};
};

// Few enough that their scores stay small beside a model.
inline constexpr int64_t kMaxScoredTokens = int64_t{1} << 20;

// Whether it generates nothing: continuations are scored, or the prompt.
bool OnlyScores(const Request& request);

// Of all continuations together.
int64_t NumContinuationTokens(const Request& request);

// The first token of the prompt that prompt_logprobs are of.
int64_t FirstLogprob(const Request& request);

// Tokens of a prompt, from its first on, that need no row of logits of their
// own: with prompt_logprobs those before logprobs_start, else all but the last.
int64_t NumWithoutLogits(const Request& request);

enum class FinishReason {
  kEos,
  kStop,  // a stop id or string, or the end of an allowed sequence
  kLength,
  kDeadline,  // it had not ended when deadline_ms had passed
};

// "eos", "stop", "length", "deadline".
std::string_view NameOf(FinishReason reason);

// A finished sequence.
struct Hypothesis {
  std::vector<TokenId> tokens;  // generated ones, what ended it included
  // Beams: cum_log_prob divided as length_penalty says
  // (beam/strategy/length_penalty.h). Samples: the mean log-probability.
  // Stochastic beams: the perturbed log-probability. Higher is better.
  float score = 0;
  // Nats. Beams: after score processors. Samples: the model's own. Stochastic
  // beams: of what is drawn from, after processors, temperature and filters.
  float cum_log_prob = 0;
  FinishReason finish_reason = FinishReason::kLength;
  // [tokens], if the request asks for them.
  std::vector<TokenLogProb> logprobs = {};
  // Which sample it is, from 0; of beams 0.
  int sample = 0;
};

// How likely a continuation is after its prompt. Nats and ranks are of the
// model's own logits.
struct ContinuationScore {
  std::vector<TokenId> tokens = {};
  double cum_log_prob = 0;  // the sum of log_probs
  // Whether greedy search would generate it: each token has the highest logit,
  // and is the lowest of those that have it.
  bool is_greedy = true;
  std::vector<float> log_probs = {};  // [tokens]
  std::vector<int> ranks = {};        // [tokens], 1 + tokens of a higher logit
};

// What a request cost.
struct Usage {
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;     // of the prompt, not computed again
  int64_t num_generated_tokens = 0;  // in the hypotheses returned
  // Steps of the model that generated for it, the first one included. Where
  // drafts are accepted one of them decides several tokens of a sample, or
  // steps of a search; BeamsEvent::num_steps counts those.
  int64_t num_steps = 0;
  // Of speculation, in all sequences: tokens drafted and verified, and those of
  // them that were accepted, but for any after the end of their sequence.
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  // Params that the request left open and the model's generation_config.json
  // gave: names of the request format, and values as JSON. None where an engine
  // was asked without a Generator.
  std::vector<std::pair<std::string, std::string>> defaults = {};
};

struct Result {
  // Best first, at most num_return_sequences. Fewer only where score
  // processors leave fewer possible.
  std::vector<Hypothesis> hypotheses;
  Usage usage;
  std::optional<uint64_t> seed = {};  // that it drew with, if it drew
  // Whether deadline_ms cut it: it ended with what it had by then. Hypotheses
  // that had ended by themselves keep their finish_reason.
  bool deadline_passed = false;
  // Of stochastic beam search: the perturbed log-probability of the best
  // sequence that was not drawn; unset if all were. A sequence of
  // log-probability l was drawn with probability 1 - exp(-exp(l - threshold)):
  // dividing by it makes sums over the hypotheses unbiased (docs/groups.md).
  std::optional<double> threshold = {};
  // Of the prompt's tokens from FirstLogprob on, if the request asks for them.
  std::optional<std::vector<TokenLogProb>> prompt_logprobs = {};
  // Of Request::continuations, in their order. Then there are no hypotheses.
  std::vector<ContinuationScore> continuations = {};
};

// Checks a request against `model`, its limits included, and fills in defaults.
// Nothing is held before this has passed.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateRequest(const ModelDescription& model, Request* request);

// Drawn seeds are below it: so many integers a float64 tells apart, in which
// readers of JSON in JavaScript and jq keep numbers.
inline constexpr uint64_t kMaxDrawnSeed = uint64_t{1} << 53;

// Draws a seed from the system's source of randomness for a request that draws
// and has none.
void GiveSeed(Request* request);

}  // namespace espalier
