// The edits of a row made in the obvious way, for one row and from all of its
// text: the oracle of score_edits.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <vector>

#include "kernels/logits/score_processors.h"

namespace espalier::testing {

inline void BanAll(std::span<const TokenId> tokens,
                   std::vector<TokenEdit>& edits) {
  for (const TokenId token : tokens) {
    edits.push_back({.token = token, .banned = true});
  }
}

// The history's distinct tokens, each with what its presence does to it.
inline void PenaliseHistory(const ScoreProcessors& processors,
                            std::span<const TokenId> history, int num_generated,
                            std::vector<TokenEdit>& edits) {
  const bool repeats = processors.repetition_penalty != 1.0f;
  const bool counts = processors.frequency_penalty != 0.0f ||
                      processors.presence_penalty != 0.0f;
  if (repeats) {
    for (const TokenId token : history) {
      edits.push_back({.token = token, .repeated = true});
    }
  }
  if (!counts) return;
  const auto generated =
      history.last(std::min<size_t>(num_generated, history.size()));
  std::vector<TokenId> tokens(generated.begin(), generated.end());
  std::ranges::sort(tokens);
  for (auto it = tokens.begin(); it != tokens.end();) {
    const auto end = std::upper_bound(it, tokens.end(), *it);
    const float count = static_cast<float>(end - it);
    edits.push_back({.token = *it,
                     .penalty = processors.frequency_penalty * count +
                                processors.presence_penalty});
    it = end;
  }
}

// Bans every token that followed an earlier occurrence of the last n - 1
// tokens; with n = 1 that is every token so far.
inline void BanRepeatedNGrams(std::span<const TokenId> history, size_t n,
                              std::vector<TokenEdit>& edits) {
  const size_t prefix_size = n - 1;
  if (history.size() < prefix_size) return;
  const auto prefix = history.last(prefix_size);
  for (size_t i = prefix_size; i < history.size(); ++i) {
    // From the end: the last tokens of most places differ already.
    const auto earlier = history.subspan(i - prefix_size, prefix_size);
    if (std::equal(earlier.rbegin(), earlier.rend(), prefix.rbegin())) {
      edits.push_back({.token = history[i], .banned = true});
    }
  }
}

// True if the next token could complete `word`.
inline bool IsNearlyThere(std::span<const TokenId> word,
                          std::span<const TokenId> history) {
  if (word.size() > history.size() + 1) return false;
  const auto prefix = word.first(word.size() - 1);
  return std::ranges::equal(prefix, history.last(prefix.size()));
}

inline void BanBadWords(const ScoreProcessors& processors,
                        std::span<const TokenId> history,
                        std::vector<TokenEdit>& edits) {
  const auto& eos = processors.eos_token_ids;
  for (const std::vector<TokenId>& word : processors.bad_words) {
    const bool is_eos =
        word.size() == 1 && std::ranges::find(eos, word[0]) != eos.end();
    if (is_eos || !IsNearlyThere(word, history)) continue;
    edits.push_back({.token = word.back(), .banned = true});
  }
}

// Two edits of one token as one.
inline TokenEdit Together(const TokenEdit& a, const TokenEdit& b) {
  return {.token = a.token,
          .banned = a.banned || b.banned,
          .repeated = a.repeated || b.repeated,
          .bias = a.bias + b.bias,
          .penalty = a.penalty + b.penalty,
          .decay = a.decay + b.decay};
}

inline void AddDecay(const EosDecay& decay, int num_generated,
                     std::vector<TokenEdit>& edits) {
  const int num_beyond = num_generated - decay.start_index;
  if (num_beyond < 1) return;
  const double grown = std::pow(decay.factor, num_beyond);
  if (grown == 1) return;
  for (const TokenId token :
       std::set(decay.tokens.begin(), decay.tokens.end())) {
    edits.push_back({.token = token, .decay = static_cast<float>(grown - 1)});
  }
}

// Sorted by token, those of one token made one. A ban says all there is to say.
inline void MergeByToken(int vocab_size, std::vector<TokenEdit>& edits) {
  std::erase_if(edits, [&](const TokenEdit& edit) {
    return edit.token < 0 || edit.token >= vocab_size;
  });
  std::ranges::stable_sort(edits, {}, &TokenEdit::token);
  size_t count = 0;
  for (const TokenEdit& edit : edits) {
    if (count > 0 && edits[count - 1].token == edit.token) {
      edits[count - 1] = Together(edits[count - 1], edit);
    } else {
      edits[count++] = edit;
    }
  }
  edits.resize(count);
  for (TokenEdit& edit : edits) {
    if (edit.banned) edit = {.token = edit.token, .banned = true};
  }
}

// Returns the edits of tokens in `allowed`, with an empty edit for each other
// one of them.
inline std::vector<TokenEdit> Restrict(const std::vector<TokenEdit>& edits,
                                       std::span<const TokenId> allowed,
                                       int vocab_size) {
  std::vector<TokenEdit> kept;
  auto edit = edits.begin();
  for (const TokenId token : allowed) {
    if (token < 0 || token >= vocab_size) continue;
    while (edit != edits.end() && edit->token < token) ++edit;
    const bool edited = edit != edits.end() && edit->token == token;
    kept.push_back(edited ? *edit : TokenEdit{.token = token});
  }
  return kept;
}

inline RowEdits ObviousEdits(const ScoreProcessors& processors,
                             std::span<const TokenId> history,
                             int num_generated, int vocab_size,
                             const std::span<const TokenId>* allowed) {
  RowEdits row;
  std::vector<TokenEdit>& edits = row.edits;
  std::vector<TokenId> forced;
  if (num_generated == 0) forced = processors.forced_first_tokens;
  if (num_generated + 1 == processors.max_new_tokens &&
      !processors.forced_last_tokens.empty()) {
    forced = processors.forced_last_tokens;
  }
  if (!forced.empty()) {
    for (const TokenId token : forced) {
      if (token < vocab_size) edits.push_back({.token = token, .forced = true});
    }
    row.is_allow_list = true;
    return row;
  }
  for (const TokenBias& bias : processors.logit_bias) {
    edits.push_back({.token = bias.token, .bias = bias.bias});
  }
  for (const auto& [tokens, bias] : processors.sequence_bias) {
    if (!IsNearlyThere(tokens, history)) continue;
    edits.push_back({.token = tokens.back(), .bias = bias});
  }
  PenaliseHistory(processors, history, num_generated, edits);
  AddDecay(processors.eos_decay, num_generated, edits);
  if (processors.no_repeat_ngram_size > 0) {
    BanRepeatedNGrams(history, processors.no_repeat_ngram_size, edits);
  }
  BanBadWords(processors, history, edits);
  BanAll(processors.suppress_tokens, edits);
  if (num_generated == processors.begin_index) {
    BanAll(processors.begin_suppress_tokens, edits);
  }
  if (num_generated < processors.min_new_tokens) {
    BanAll(processors.eos_token_ids, edits);
  }
  MergeByToken(vocab_size, edits);
  if (processors.allowed_tokens.has_value()) {
    edits = Restrict(edits, *processors.allowed_tokens, vocab_size);
    row.is_allow_list = true;
  }
  if (allowed != nullptr) {
    // Tokens that the processors do not allow are already missing.
    if (row.is_allow_list) {
      std::erase_if(edits, [&](const TokenEdit& edit) {
        return !std::ranges::binary_search(*allowed, edit.token);
      });
    } else {
      edits = Restrict(edits, *allowed, vocab_size);
    }
    row.is_allow_list = true;
  }
  return row;
}

}  // namespace espalier::testing
