// Score processors: what a request may do to the score of a token before the
// best tokens are chosen. All of them touch a few tokens of the vocabulary and
// leave the rest alone, so a row's processing is a short sorted list of edits
// that selection applies while it reads the row (select.h): no pass of its
// own, no copy of the row.
//
// Rules are those of transformers 5 (LogitsProcessor subclasses of the same
// names); those it does not have, frequency and presence penalties, are vLLM's,
// as is the order, which both share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/host_device.h"
#include "base/ids.h"
#include "base/shared_list.h"

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

// Makes EOS tokens likelier where a text grows long: from the token after the
// first `start_index` generated ones on, |score| * (factor^n - 1) is added to
// their scores, n counting tokens from there. An infinite score stays.
struct EosDecay {
  std::vector<TokenId> tokens;  // empty is off
  int start_index = 0;
  double factor = 1;  // > 0

  // factor^n - 1; 0 where nothing is added.
  float At(int num_generated) const;
};

// What one request asks for; constant during its life, and its lists shared
// with requests of the same ones. In the order in which they act: biases, the
// repetition penalty, frequency and presence penalties, the decay; and bans,
// which are the same before and after.
struct ScoreProcessors {
  SharedList<TokenBias> logit_bias;  // ascending by token, each once
  SharedList<SequenceTokenBias> sequence_bias;
  // > 0; for every distinct token of prompt and generated text: a score < 0 is
  // multiplied by it, any other divided. 1 is off.
  float repetition_penalty = 1.0f;
  // Subtracted for every token of the generated text: so much for each time it
  // stands there, and once. 0 is off.
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  // A token is banned that would complete an n-gram of this size which prompt
  // and generated text already contain. 0 is off.
  int no_repeat_ngram_size = 0;
  // Token sequences, none empty: a token is banned that would complete one of
  // them. One that consists of a single EOS id has no effect.
  SharedList<std::vector<TokenId>> bad_words;
  // Banned always.
  SharedList<TokenId> suppress_tokens;
  // Banned after so many generated tokens, and nowhere else.
  SharedList<TokenId> begin_suppress_tokens;
  int begin_index = 0;
  // Banned while fewer than `min_new_tokens` tokens are generated.
  SharedList<TokenId> eos_token_ids;
  int min_new_tokens = 0;
  // If set, all others are banned always. Ascending, each once, not empty.
  std::optional<SharedList<TokenId>> allowed_tokens;
  // Tokens that alone may come at a place, with a score of 0 whatever else is
  // said: first, and as the last of `max_new_tokens`; where both are, the last
  // ones. Each ascending, each token once; empty is off. (transformers'
  // ForcedBOSTokenLogitsProcessor and ForcedEOSTokenLogitsProcessor.)
  SharedList<TokenId> forced_first_tokens;
  SharedList<TokenId> forced_last_tokens;
  int max_new_tokens = 0;  // of forced_last_tokens
  EosDecay eos_decay;
  // Whether scores that are log-probabilities are normalised after all edits
  // (select.h). It is no edit.
  bool renormalizes = false;

  // Whether edits depend on the tokens so far. A sequence of one token does
  // not: it is banned, or has its bias, wherever it would stand.
  bool needs_history() const;
  // Whether edits of places after the first differ in another way than by
  // min_new_tokens and the history.
  bool has_edits_by_place() const;
  // Tokens of all bad words, and of all biased sequences.
  int64_t num_bad_word_tokens() const;
  int64_t num_biased_tokens() const;
};

// What is done to the score of one token of one row.
struct TokenEdit {
  TokenId token = 0;
  bool banned = false;    // the score becomes -inf, whatever else is said
  bool repeated = false;  // the row's repetition penalty applies
  bool forced = false;    // else the score becomes 0, whatever else is said
  uint8_t padding = 0;    // 0: lists are compared as bytes
  float bias = 0.0f;      // added first
  float penalty = 0.0f;   // subtracted after the repetition penalty
  float decay = 0.0f;     // EosDecay::At, of the score so far: added last

  friend bool operator==(const TokenEdit&, const TokenEdit&) = default;
};

// The edits of a row.
struct RowEdits {
  std::vector<TokenEdit> edits;  // ascending by token, each once
  // Whether tokens without an edit are banned.
  bool is_allow_list = false;
};

// What the processors do to a row: ScoreEdits (score_edits.h) made for one row
// alone, for who has no more of them.
//   history         [num_tokens]  prompt and generated tokens so far; may be
//                       empty if !processors.needs_history()
//   num_generated   how many tokens at its end were generated
//   vocab_size      tokens outside [0, vocab_size) are left out
//   allowed         if not null: tokens that alone may follow here, ascending,
//                       each once; beside processors.allowed_tokens
RowEdits CollectEdits(const ScoreProcessors& processors,
                      std::span<const TokenId> history, int num_generated,
                      int vocab_size,
                      const std::span<const TokenId>* allowed = nullptr);

// How many edits a row of at most `num_tokens` tokens has at most, whatever
// they are.
int64_t MaxEdits(const ScoreProcessors& processors, int64_t num_tokens,
                 int vocab_size);

// The repetition penalty: one float32 rounding, which no compiler may spare by
// making one operation of this and the next.
ESPALIER_HOST_DEVICE inline float Penalise(float score,
                                           float repetition_penalty) {
#ifdef __CUDA_ARCH__
  return score < 0.0f ? __fmul_rn(score, repetition_penalty)
                      : __fdiv_rn(score, repetition_penalty);
#else
  return score < 0.0f ? score * repetition_penalty : score / repetition_penalty;
#endif
}

// The share `decay` of a score's size on top of it, rounded twice.
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

// A score after an edit that is no ban: one float32 rounding an operation,
// none where an operation is off.
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
