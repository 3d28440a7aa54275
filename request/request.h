// Request and Result: the input and output of an engine, as values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/alignment.h"
#include "base/feature_matrix.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "base/token_log_prob.h"
#include "request/generation_params.h"

namespace espalier {

struct Request {
  // Used exactly as given: no BOS is added. At least one token, or with
  // `features` none.
  std::vector<TokenId> prompt_tokens;
  GenerationParams params;
  // Number of tokens at the prompt's end whose text the output continues; 0:
  // the output is a text of its own, such as an answer. Unset: all tokens. With
  // an encoder the output continues the decoder prompt.
  std::optional<int64_t> num_continued = {};
  // The caller's id for the request, for traces; may be empty.
  std::string caller_id = {};
  // Token sequences to score after the prompt (with an encoder: after the
  // decoder prompt) instead of generating; none is empty, and together they
  // have at most kMaxScoredTokens tokens. Common prefixes are computed once.
  // Empty: the request generates.
  std::vector<std::vector<int64_t>> continuations = {};
  // Read in place of prompt_tokens by an encoder that reads features
  // (EncoderDescription::features), and not changed while the request runs.
  std::shared_ptr<const FeatureMatrix> features = nullptr;
  // Aligns the tokens that the decoder begins with (Result::alignment) instead
  // of generating; the model reports the attention of these heads
  // (EncoderDescription::reported_attention). No params but the decoder prompt,
  // deadline_ms and those of scheduling have a meaning.
  std::shared_ptr<const AlignmentQuery> alignment = nullptr;
};

// Few enough that their scores stay small beside a model.
inline constexpr int64_t kMaxScoredTokens = int64_t{1} << 20;

// True if the request generates nothing: it scores or aligns.
bool OnlyScores(const Request& request);

// Returns the total length of all continuations.
int64_t NumContinuationTokens(const Request& request);

// Returns the first token of the prompt that prompt_logprobs cover.
int64_t FirstLogprob(const Request& request);

// Returns how many leading tokens of the prompt need no row of logits: with
// prompt_logprobs all before logprobs_start, else all but the last.
int64_t NumWithoutLogits(const Request& request);

enum class FinishReason {
  kEos,
  kStop,  // a stop id or string, or the end of an allowed sequence or text
  kLength,
  kDeadline,  // it had not ended when deadline_ms had passed
};

// "eos", "stop", "length", "deadline".
std::string_view NameOf(FinishReason reason);

// A finished sequence.
struct Hypothesis {
  std::vector<TokenId> tokens;  // generated ones, what ended it included
  // Beams: cum_log_prob with the length penalty
  // (beam/strategy/length_penalty.h). Samples: the mean log-probability, by the
  // same length.
  // Stochastic beams: the perturbed log-probability. Higher is better.
  float score = 0;
  // Nats, of all tokens. Beams: after score processors. Samples: the model's
  // own; with renormalize_logits or timestamps after score processors.
  // Stochastic beams: after processors, temperature and filters.
  float cum_log_prob = 0;
  FinishReason finish_reason = FinishReason::kLength;
  // [tokens], if the request asks for them.
  std::vector<TokenLogProb> logprobs = {};
  // The sum of those of its tokens, nats, if the request asks for them.
  std::optional<float> legal_log_mass = {};
  // Index of the sample, from 0; 0 for beams.
  int sample = 0;
  // [tokens], if the request asks for them: the rank, from 0, of the beam that
  // each token was appended to, among those that lived before its step. The
  // first token follows beam 0.
  std::vector<int> beam_indices = {};
};

// Log-probability of a continuation given its prompt. Values and ranks come
// from the model's own logits; nats.
struct ContinuationScore {
  std::vector<TokenId> tokens = {};
  double cum_log_prob = 0;  // the sum of log_probs
  // True if greedy search would generate it: each token has the highest logit,
  // ties going to the lowest id.
  bool is_greedy = true;
  std::vector<float> log_probs = {};  // [tokens]
  std::vector<int> ranks = {};        // [tokens], 1 + tokens of a higher logit
};

// Token and step counts of a request.
struct Usage {
  int64_t num_prompt_tokens = 0;
  int64_t num_cached_tokens = 0;     // prompt tokens that were not recomputed
  int64_t num_generated_tokens = 0;  // in the hypotheses returned
  // Model steps that generated for the request, the first one included. With
  // drafts, one step may decide several tokens of a sample, or several steps of
  // a search; BeamsEvent::num_steps counts the latter.
  int64_t num_steps = 0;
  // Speculation, over all sequences: tokens that were drafted and verified, and
  // the accepted ones among them, without any after the end of their sequence.
  int64_t num_drafted_tokens = 0;
  int64_t num_accepted_tokens = 0;
  // Params that the request left open and the model's generation_config.json
  // set: names of the request format, and values as JSON. Empty if the request
  // bypassed the Generator.
  std::vector<std::pair<std::string, std::string>> defaults = {};
};

struct Result {
  // Best first, at most num_return_sequences. Fewer only where score
  // processors leave fewer possible.
  std::vector<Hypothesis> hypotheses;
  Usage usage;
  std::optional<uint64_t> seed = {};  // seed of its random draws, if any
  // True if deadline_ms ended the request early. Hypotheses that had ended
  // before keep their finish_reason.
  bool deadline_passed = false;
  // Stochastic beam search only: the perturbed log-probability of the best
  // sequence that was not sampled; unset if all were. A sequence of
  // log-probability l is sampled with probability 1 - exp(-exp(l - threshold)).
  // Dividing by it makes sums over the hypotheses unbiased (docs/groups.md).
  std::optional<double> threshold = {};
  // Prompt log-probabilities from FirstLogprob on, if the request asks for
  // them.
  std::optional<std::vector<TokenLogProb>> prompt_logprobs = {};
  // Scores of Request::continuations, in their order. If present, there are no
  // hypotheses.
  std::vector<ContinuationScore> continuations = {};
  // If the request asks for it.
  std::optional<Alignment> alignment = {};
  // The weights that its first step had: the version of the last update before
  // it (espalier/update_weights.h); 0: none came before.
  int64_t weights_version = 0;
};

// Checks a request against `model`, its limits included, and fills in defaults.
// The engine allocates nothing for a request that fails.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateRequest(const ModelDescription& model, Request* request);

// Upper bound of seeds that the engine draws. A float64 represents every
// integer below it, so JavaScript and jq read such a seed from JSON exactly.
inline constexpr uint64_t kMaxDrawnSeed = uint64_t{1} << 53;

// Draws a seed from the system's source of randomness for a request that draws
// and has none.
void GiveSeed(Request* request);

}  // namespace espalier
