// Score processors: what a request may do to the score of a token before the
// best tokens are chosen. All of them touch a few tokens of the vocabulary and
// leave the rest alone, so a row's processing is a short sorted list of edits
// that selection applies while it reads the row (select.h): no pass of its
// own, no copy of the row.
//
// Rules are those of transformers 5 (LogitsProcessor subclasses of the same
// names); bans are order-free, and the penalty comes before all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/host_device.h"
#include "base/ids.h"

namespace espalier {

// What one request asks for; constant during its life.
struct ScoreProcessors {
  // > 0; for every distinct token of prompt and generated text: a score < 0 is
  // multiplied by it, any other divided. 1 is off.
  float repetition_penalty = 1.0f;
  // A token is banned that would complete an n-gram of this size which prompt
  // and generated text already contain. 0 is off.
  int no_repeat_ngram_size = 0;
  // Token sequences, none empty: a token is banned that would complete one of
  // them. One that consists of a single EOS id has no effect, and one longer
  // than the text so far has none yet.
  std::vector<std::vector<TokenId>> bad_words;
  // Banned always.
  std::vector<TokenId> suppress_tokens;
  // Banned while fewer than `min_new_tokens` tokens are generated.
  std::vector<TokenId> eos_token_ids;
  int min_new_tokens = 0;

  // Whether edits depend on the tokens so far.
  bool needs_history() const {
    return repetition_penalty != 1.0f || no_repeat_ngram_size > 0 ||
           !bad_words.empty();
  }
};

// One touched token of one row.
struct TokenEdit {
  TokenId token = 0;
  bool banned = false;  // score becomes -inf; otherwise it is penalised

  friend bool operator==(const TokenEdit&, const TokenEdit&) = default;
};

// The edits of a row, sorted by token, each token once (a ban wins).
//   history         [num_tokens]  prompt and generated tokens so far; may be
//                       empty if !processors.needs_history()
//   num_generated   how many tokens were generated so far
//   vocab_size      tokens outside [0, vocab_size) are left out
// Cost, with nothing for what is off: the penalty sorts its edits, O(num_tokens
// log num_tokens); n-grams take O(num_tokens) in most texts, where few places
// match in more than a token or two, and O(num_tokens * n) where one token
// repeats; bad words take O(all their tokens).
std::vector<TokenEdit> CollectEdits(const ScoreProcessors& processors,
                                    std::span<const TokenId> history,
                                    int num_generated, int vocab_size);

// The penalty itself: one float32 rounding.
ESPALIER_HOST_DEVICE inline float Penalise(float score,
                                           float repetition_penalty) {
  return score < 0.0f ? score * repetition_penalty : score / repetition_penalty;
}

}  // namespace espalier
