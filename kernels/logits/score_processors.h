// Score processors: changes of token scores that a request makes before the
// best tokens are chosen. Each of them changes a few tokens of the vocabulary,
// so a row's processing is a short sorted list of edits that selection applies
// while it reads the row (select.h): no extra pass, and no copy of the row.
//
// Rules are those of transformers 5 (LogitsProcessor subclasses of the same
// names). Frequency and presence penalties, which it lacks, are vLLM's. The
// order is that of both.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/host_device.h"
#include "base/ids.h"
#include "base/shared_list.h"
#include "kernels/logits/timestamp_rule.h"

namespace espalier {

// Added to the score of a token.
struct TokenBias {
  TokenId token = 0;
  float bias = 0;  // finite
  friend bool operator==(const TokenBias&, const TokenBias&) = default;
};

// Added to the score of a token that would complete a sequence of several.
struct SequenceTokenBias {
  std::vector<TokenId> tokens;  // not empty
  float bias = 0;               // finite
  friend bool operator==(const SequenceTokenBias&,
                         const SequenceTokenBias&) = default;
};

// Makes EOS tokens likelier as a text grows: after the first `start_index`
// generated tokens, |score| * (factor^n - 1) is added to their scores, with n
// the number of tokens since then. An infinite score stays.
struct EosDecay {
  std::vector<TokenId> tokens;  // empty is off
  int start_index = 0;
  double factor = 1;  // > 0

  // Returns factor^n - 1, or 0 if nothing is added.
  float At(int num_generated) const;
};

// Score processors of one request; constant during its life. Requests with
// equal lists share them. They act in this order: biases, the repetition
// penalty, frequency and presence penalties, the decay. Bans have the same
// effect at any point.
struct ScoreProcessors {
  SharedList<TokenBias> logit_bias;  // ascending by token, each once
  SharedList<SequenceTokenBias> sequence_bias;
  // > 0; applies to every distinct token of prompt and generated text: a score
  // < 0 is multiplied by it, any other is divided. 1 is off.
  float repetition_penalty = 1.0f;
  // Subtracted for tokens of the generated text: the first per occurrence, the
  // second once. 0 is off.
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  // Bans a token that would complete an n-gram of this size which prompt and
  // generated text already contain. 0 is off.
  int no_repeat_ngram_size = 0;
  // Token sequences, none empty. Bans a token that would complete one of them.
  // One that consists of a single EOS id has no effect.
  SharedList<std::vector<TokenId>> bad_words;
  // Banned always.
  SharedList<TokenId> suppress_tokens;
  // Banned after `begin_index` generated tokens, and nowhere else.
  SharedList<TokenId> begin_suppress_tokens;
  int begin_index = 0;
  // Banned while fewer than `min_new_tokens` tokens are generated.
  SharedList<TokenId> eos_token_ids;
  int min_new_tokens = 0;
  // If set, all other tokens are always banned. Ascending, each once, not
  // empty.
  std::optional<SharedList<TokenId>> allowed_tokens;
  // The only tokens allowed at a place, with a score of 0 whatever the other
  // edits: at the first place, and at the last of `max_new_tokens`. If these
  // are the same place, the last ones apply. Each ascending, each token once;
  // empty is off. (transformers' ForcedBOSTokenLogitsProcessor and
  // ForcedEOSTokenLogitsProcessor.)
  SharedList<TokenId> forced_first_tokens;
  SharedList<TokenId> forced_last_tokens;
  int max_new_tokens = 0;  // for forced_last_tokens
  EosDecay eos_decay;
  // True if log-probability scores are normalised after all edits (select.h),
  // and samples' log-probabilities, too. Adds no edit.
  bool renormalizes = false;
  // If set, edits act on logits, then the rule does, and scores are normalised
  // afterwards (edited_logits.h). Adds no edit.
  std::optional<TimestampRule> timestamps;

  // True if edits depend on the tokens so far. Sequences of one token do not
  // make it true: their ban or bias applies everywhere.
  bool needs_history() const;
  // True if edits differ between places after the first for other reasons than
  // min_new_tokens and the history.
  bool has_edits_by_place() const;
  // Return the numbers of tokens of all bad words, and of all biased sequences.
  int64_t num_bad_word_tokens() const;
  int64_t num_biased_tokens() const;
};

// The edit of one token's score in one row.
struct TokenEdit {
  TokenId token = 0;
  bool banned = false;    // the score becomes -inf, whatever the other edits
  bool repeated = false;  // the row's repetition penalty applies
  bool forced = false;    // else the score becomes 0, whatever the other edits
  uint8_t padding = 0;    // 0: lists are compared as bytes
  float bias = 0.0f;      // added first
  float penalty = 0.0f;   // subtracted after the repetition penalty
  float decay = 0.0f;     // EosDecay::At, times |score|: added last

  friend bool operator==(const TokenEdit&, const TokenEdit&) = default;
};

// The edits of a row.
struct RowEdits {
  std::vector<TokenEdit> edits;  // ascending by token, each once
  // True if tokens without an edit are banned.
  bool is_allow_list = false;
};

// Returns the edits of one row. For several rows of a request ScoreEdits
// (score_edits.h) is faster.
//   history         [num_tokens]  prompt and generated tokens so far; may be
//                       empty if !processors.needs_history()
//   num_generated   number of generated tokens at its end
//   vocab_size      tokens outside [0, vocab_size) are left out
//   allowed         if not null: the only tokens that may follow here,
//                       ascending, each once; in addition to
//                       processors.allowed_tokens
RowEdits CollectEdits(const ScoreProcessors& processors,
                      std::span<const TokenId> history, int num_generated,
                      int vocab_size,
                      const std::span<const TokenId>* allowed = nullptr);

// Returns an upper bound of the edits of a row of at most `num_tokens` tokens.
int64_t MaxEdits(const ScoreProcessors& processors, int64_t num_tokens,
                 int vocab_size);

// Applies the repetition penalty: one float32 rounding. Compilers must not
// contract it with the next operation.
ESPALIER_HOST_DEVICE inline float Penalise(float score,
                                           float repetition_penalty) {
#ifdef __CUDA_ARCH__
  return score < 0.0f ? __fmul_rn(score, repetition_penalty)
                      : __fdiv_rn(score, repetition_penalty);
#else
  return score < 0.0f ? score * repetition_penalty : score / repetition_penalty;
#endif
}

// Adds the share `decay` of a score's magnitude, rounded twice.
ESPALIER_HOST_DEVICE inline float AddDecay(float score, float decay) {
  if (!(score - score == 0.0f)) return score;  // infinite
  const float size = score < 0.0f ? -score : score;
#ifdef __CUDA_ARCH__
  return __fadd_rn(score, __fmul_rn(size, decay));
#else
  const float more = size * decay;
  return score + more;
#endif
}

// Returns a score after an edit without a ban: one float32 rounding for each
// enabled operation.
ESPALIER_HOST_DEVICE inline float EditedScore(float score,
                                              const TokenEdit& edit,
                                              float repetition_penalty) {
  if (edit.forced) return 0.0f;
  score += edit.bias;
  if (edit.repeated) score = Penalise(score, repetition_penalty);
  score -= edit.penalty;
  return edit.decay == 0.0f ? score : AddDecay(score, edit.decay);
}

}  // namespace espalier
