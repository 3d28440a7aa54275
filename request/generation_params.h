// GenerationParams: the options of a request, under the names of the request
// format and with its defaults. ValidateParams checks them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/shared_list.h"
#include "request/constraint_params.h"
#include "request/speculation_params.h"

namespace espalier {

struct ModelDescription;

// When a beam search ends before its length limit (transformers 5
// `_beam_search`; docs/groups.md has the formulas).
enum class EarlyStopping {
  kFalse,  // when the best live beam, at its present length, cannot beat the
           // worst kept hypothesis
  kTrue,   // when num_beams hypotheses are kept
  kNever,  // when no live beam can beat it at any length
};

// Divisor of a hypothesis' cumulative score, by its length t (docs/groups.md).
enum class LengthPenaltyForm {
  kPower,  // t^length_penalty
  kWu,     // ((5 + t) / 6)^length_penalty: Wu et al. 2016, equation 14
};

// Which log-probabilities of generated tokens are reported (vLLM's
// logprobs_mode).
enum class LogprobsMode {
  kRaw,        // the model's own
  kProcessed,  // those that tokens are chosen by: after edits and, for samples,
               // temperature and filters
};

// "raw_logprobs", "processed_logprobs".
std::string_view NameOf(LogprobsMode mode);

// From the token after the first `start_index` on an EOS becomes more likely,
// and more so with each further one: |score| * (factor^n - 1) is added to its
// score, n being the tokens generated beyond them.
struct LengthDecay {
  int64_t start_index = 0;  // >= 0
  double factor = 1.0;      // > 0
  friend bool operator==(const LengthDecay&, const LengthDecay&) = default;
};

// Added to the score of the last of `tokens` where the others stand before it.
struct SequenceBias {
  std::vector<int64_t> tokens;  // at least one
  double bias = 0;
  friend auto operator<=>(const SequenceBias&, const SequenceBias&) = default;
};

// Whisper's times among the tokens of a text, by the rule of
// kernels/logits/timestamp_rule.h. Fields are token ids unless they say
// otherwise.
struct TimestampParams {
  int64_t first_time = 0;     // a time is each from it on
  int64_t end = 0;            // the EOS; text has those below; < first_time
  int64_t no_timestamps = 0;  // never chosen; < first_time
  // The first time is at most first_time + this; >= 0. Unset: any.
  std::optional<int64_t> max_initial_step = {};
  // The decoder prompt ends in text, so that the output need not begin with a
  // time.
  bool after_prefix = false;
  friend bool operator==(const TimestampParams&,
                         const TimestampParams&) = default;
};

// Requests of this priority and later ones, such as calls of batches, run in
// the background: what runs is never in their way.
inline constexpr int64_t kBackgroundPriority = int64_t{1} << 50;

// Lists are shared by copies: requests made of one call pay for them once.
struct GenerationParams {
  // Beams that live at a step; beam search if > 1. >= 1.
  int64_t num_beams = 1;
  // Hypotheses returned, best first: in beam search in [1, num_beams], else the
  // number of samples, >= 1.
  int64_t num_return_sequences = 1;
  // Samples drawn, of which the num_return_sequences best by mean
  // log-probability are returned. Unset: as many as are returned.
  std::optional<int64_t> best_of;
  // Exponent on the generated length, the prompt not included:
  // score = cum_log_prob / length^length_penalty. Any finite number; > 0
  // favours longer, < 0 shorter hypotheses.
  double length_penalty = 1.0;
  LengthPenaltyForm length_penalty_form = LengthPenaltyForm::kPower;
  // False: an EOS or stop id at the end does not count in the length that
  // divides a score, which is at least 1, of beams and samples (openai's
  // Whisper and CTranslate2).
  bool length_counts_eos = true;
  EarlyStopping early_stopping = EarlyStopping::kFalse;
  // With early_stopping true, round(num_beams * patience) hypotheses end the
  // search. > 0. Kasai et al. 2022.
  double patience = 1.0;
  // Groups of beams that search one after the other at each step, a token's
  // score lowered by diversity_penalty for each beam of an earlier group that
  // has just chosen it. num_beams is a multiple. Vijayakumar et al. 2016.
  int64_t num_beam_groups = 1;
  double diversity_penalty = 0.0;  // >= 0
  // Stochastic beam search: num_beams different sequences, drawn without
  // replacement. Kool et al. 2019.
  bool stochastic = false;
  // Tokens generated at most; >= 1, or 0 with prompt_logprobs, for these alone.
  // Unset: the model's default, but no more than its context leaves room for.
  std::optional<int64_t> max_new_tokens;
  // EOS and stop ids are impossible, and stop strings do not count, before so
  // many tokens; >= 0. From max_new_tokens on they never come, as in the
  // reference.
  int64_t min_new_tokens = 0;
  // Ids that end a sequence. Unset: the model's. Empty: none.
  std::optional<SharedList<int64_t>> eos_token_id;
  // More of them, reported as "stop".
  SharedList<int64_t> stop_token_ids;
  bool ignore_eos = false;  // eos_token_id ends nothing
  // Texts that end a sequence; none empty. The text is cut before the stop, or
  // after it.
  SharedList<std::string> stop;
  bool include_stop = false;
  // Omits special tokens from texts; false: shows their names.
  bool skip_special_tokens = true;
  // SamplingParams of kernels/sample/sample.h. Others than the defaults need
  // do_sample or stochastic (temperature 0 aside, which is greedy).
  bool do_sample = false;
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  double typical_p = 1.0;
  // Unset: drawn by the engine, and reported.
  std::optional<uint64_t> seed;
  // ScoreProcessors of kernels/logits/score_processors.h.
  double repetition_penalty = 1.0;  // > 0
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  int64_t no_repeat_ngram_size = 0;
  SharedList<std::pair<int64_t, double>> logit_bias;  // token, bias
  SharedList<SequenceBias> sequence_bias;
  std::optional<LengthDecay> exponential_decay_length_penalty;
  // Renormalizes scores into log-probabilities over the vocabulary after all
  // score processors. Draws are from these in any case; with it, samples are
  // scored by them, too, before temperature and filters.
  bool renormalize_logits = false;
  SharedList<std::vector<int64_t>> bad_words_ids;
  // bad_words_ids as text: an engine with a tokenizer encodes them
  // (request/bad_words.h).
  SharedList<std::string> bad_words;
  SharedList<int64_t> suppress_tokens;
  // suppress_tokens for the first position that forced_bos_token_id leaves
  // open.
  SharedList<int64_t> begin_suppress_tokens;
  // Tokens that the output begins with; what is generated follows them. With an
  // encoder they stand after those that every decoder of the model begins with,
  // transformers' decoder_input_ids; without one after the prompt
  // (request/decoder_prompt.h). Empty: none.
  std::vector<int64_t> decoder_prompt_tokens;
  // decoder_prompt_tokens as text: an engine with a tokenizer encodes it.
  // Empty: none.
  std::string decoder_prompt;
  // The token that alone may come first, and those that alone may come as the
  // last of max_new_tokens, each with a score of 0, whatever else is said.
  std::optional<int64_t> forced_bos_token_id;
  SharedList<int64_t> forced_eos_token_id;
  std::optional<SharedList<int64_t>> allowed_token_ids;
  // Score processors act on logits before it, and scores are renormalized after
  // it. Of C++ alone; not for beams that are drawn or diverse, nor for drafts;
  // where a GPU selects, beside bans alone. Unset: none.
  std::optional<TimestampParams> timestamps;
  // The language of the output's text. An EOS id, or a stop id, may follow
  // where the text may end; where it must, the output ends by itself.
  std::optional<ConstraintParams> constraint;
  // Text, such as "</think>", or the name of a special token, up to whose first
  // appearance the constraint leaves the output free (constrain/start_after.h).
  // Empty: none. Of at most kMaxStartAfterBytes.
  std::string start_after;
  // The output is one of these; none empty.
  std::optional<SharedList<std::vector<int64_t>>> allowed_sequences;
  // Log-probabilities of each token and of so many best ones at its place; of
  // what is generated, and of the prompt. In [0, kMaxLogProbs]. Unset: none.
  std::optional<int64_t> logprobs;
  std::optional<int64_t> prompt_logprobs;
  LogprobsMode logprobs_mode = LogprobsMode::kRaw;  // mode of `logprobs`
  // The log-probabilities of tokens have the model's probability of all that
  // the constraint, or allowed_sequences, allowed there
  // (TokenLogProb::legal_log_mass). Needs `logprobs`.
  bool legal_log_mass = false;
  // The hypotheses of a beam search have Hypothesis::beam_indices.
  bool beam_indices = false;
  // The first token of the prompt, counted from 0, that prompt_logprobs are of;
  // 0 is 1, for the first follows nothing. What is before it need not be
  // computed if the prefix cache has it, and has no rows of logits. In
  // [0, tokens of the prompt].
  int64_t logprobs_start = 0;

  // Drafts of tokens that a step verifies. Unset: what the engine has for such
  // requests (EngineOptions::speculate), or none.
  std::optional<SpeculationParams> speculate;

  // Milliseconds from its submission after which the request ends with the best
  // result so far (docs/scheduling.md, "Deadlines"). In [1, kMaxDeadlineMs].
  // Unset: none.
  std::optional<int64_t> deadline_ms;

  // Scheduling options; they do not change the result. With prefix_cache,
  // requests share the pages of common prefixes, and this request's pages are
  // kept for later ones; only requests with equal salts share. A salt has at
  // most kMaxCacheSaltBytes (docs/pages.md).
  bool prefix_cache = true;
  std::string cache_salt;
  // Lower runs first, as in vLLM; requests that wait move up
  // (docs/scheduling.md). In [-kMaxAbsPriority, kMaxAbsPriority]; from
  // kBackgroundPriority on in the background.
  int64_t priority = 0;
  // Tenant of the request: within a priority, tenants with waiting requests
  // share the tokens (docs/scheduling.md, "Tenants"). At most kMaxTenantBytes.
  std::string tenant;

  friend bool operator==(const GenerationParams&,
                         const GenerationParams&) = default;
};

// Maximum of `logprobs`: more than the 20 of other servers, few enough that a
// report is small beside a row of logits.
inline constexpr int64_t kMaxLogProbs = 64;

// More than a hash or the name of a tenant takes, few enough that the roots of
// a prefix tree stay small beside their pages.
inline constexpr int64_t kMaxCacheSaltBytes = 256;

// More than the marker of any model takes.
inline constexpr int64_t kMaxStartAfterBytes = 256;

inline constexpr int64_t kMaxTenantBytes = 256;

// Some 24 days.
inline constexpr int64_t kMaxDeadlineMs = (int64_t{1} << 31) - 1;

// 2^52: times in milliseconds or microseconds are within it, and each is a turn
// of its own (batcher/scheduler/admission.h).
inline constexpr int64_t kMaxAbsPriority = int64_t{1} << 52;

// True if sequences compete with one another; else they are samples.
bool IsBeamSearch(const GenerationParams& params);

// Returns the largest number of live sequences in a step: beams or samples.
int NumSequences(const GenerationParams& params);

// True if the sequences of the request may have drafts. A beam search that is
// sampled, stochastic or diverse may not, nor may a text with timestamps.
bool CanSpeculate(const GenerationParams& params);
// True if they may have drafts by `method`, or it is kNone: those of a
// constraint are for samples that have one.
bool CanDraftBy(SpeculationMethod method, const GenerationParams& params);

// True if the result depends on the seed.
bool DrawsAtRandom(const GenerationParams& params);

// Checks `params` for a prompt of `num_prompt_tokens` against `model` and
// fills in the model's defaults, so that max_new_tokens and eos_token_id are
// set afterwards. What has no meaning together is an error, so that no option
// is ever ignored; but options of beam search may stand beside num_beams 1,
// the search of width one, which has nothing to rank.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateParams(const ModelDescription& model,
                            int64_t num_prompt_tokens,
                            GenerationParams* params);

}  // namespace espalier
