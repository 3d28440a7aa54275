#include "kernels/score_processors.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {
namespace {

void BanAll(std::span<const TokenId> tokens, std::vector<TokenEdit>& edits) {
  for (const TokenId token : tokens) edits.push_back({token, true});
}

void PenaliseAll(std::span<const TokenId> tokens,
                 std::vector<TokenEdit>& edits) {
  for (const TokenId token : tokens) edits.push_back({token, false});
}

// Bans what followed the last n - 1 tokens wherever they occurred before; with
// n = 1 that is every token so far.
void BanRepeatedNGrams(std::span<const TokenId> history, size_t n,
                       std::vector<TokenEdit>& edits) {
  const size_t prefix_size = n - 1;
  if (history.size() < prefix_size) return;
  const auto prefix = history.last(prefix_size);
  for (size_t i = prefix_size; i < history.size(); ++i) {
    // From the end: the last tokens of most places differ already.
    const auto earlier = history.subspan(i - prefix_size, prefix_size);
    if (std::equal(earlier.rbegin(), earlier.rend(), prefix.rbegin())) {
      edits.push_back({history[i], true});
    }
  }
}

// Whether the next token could complete `word`.
bool IsDue(std::span<const TokenId> word, std::span<const TokenId> history) {
  if (word.size() == 1) return true;
  if (word.size() > history.size()) return false;
  const auto prefix = word.first(word.size() - 1);
  return std::ranges::equal(prefix, history.last(prefix.size()));
}

void BanBadWords(const ScoreProcessors& processors,
                 std::span<const TokenId> history,
                 std::vector<TokenEdit>& edits) {
  const auto& eos = processors.eos_token_ids;
  for (const std::vector<TokenId>& word : processors.bad_words) {
    DCHECK(!word.empty()) << "an empty bad word";
    const bool is_eos =
        word.size() == 1 && std::ranges::find(eos, word[0]) != eos.end();
    if (!is_eos && IsDue(word, history)) edits.push_back({word.back(), true});
  }
}

// Sorted by token; of a token's edits the ban, if there is one, else any.
void KeepOneEach(int vocab_size, std::vector<TokenEdit>& edits) {
  std::erase_if(edits, [&](const TokenEdit& edit) {
    return edit.token < 0 || edit.token >= vocab_size;
  });
  std::ranges::sort(edits, [](const TokenEdit& a, const TokenEdit& b) {
    return a.token != b.token ? a.token < b.token : a.banned > b.banned;
  });
  const auto rest = std::ranges::unique(edits, {}, &TokenEdit::token);
  edits.erase(rest.begin(), rest.end());
}

}  // namespace

std::vector<TokenEdit> CollectEdits(const ScoreProcessors& processors,
                                    std::span<const TokenId> history,
                                    int num_generated, int vocab_size) {
  std::vector<TokenEdit> edits;
  if (processors.repetition_penalty != 1.0f) PenaliseAll(history, edits);
  if (processors.no_repeat_ngram_size > 0) {
    BanRepeatedNGrams(history, processors.no_repeat_ngram_size, edits);
  }
  BanBadWords(processors, history, edits);
  BanAll(processors.suppress_tokens, edits);
  if (num_generated < processors.min_new_tokens) {
    BanAll(processors.eos_token_ids, edits);
  }
  KeepOneEach(vocab_size, edits);
  return edits;
}

}  // namespace espalier
