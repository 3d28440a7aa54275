#include "kernels/logits/score_processors.h"

#include <algorithm>
#include <cmath>

#include "kernels/logits/score_edits.h"

namespace espalier {

namespace {

struct NumTokens {
  int64_t count = 0;
};

// Returns the number of tokens in all elements, counted once for all copies of
// the list.
template <typename T, typename SizeOf>
int64_t CountTokens(const SharedList<T>& list, const SizeOf& size_of) {
  if (list.empty()) return 0;
  const auto total = list.template Derived<NumTokens>({}, [&] {
    NumTokens tokens;
    for (const T& element : list) {
      tokens.count += static_cast<int64_t>(size_of(element));
    }
    return tokens;
  });
  return total->count;
}

}  // namespace

float EosDecay::At(int num_generated) const {
  if (tokens.empty() || num_generated <= start_index) return 0.0f;
  return static_cast<float>(std::pow(factor, num_generated - start_index) - 1);
}

bool ScoreProcessors::needs_history() const {
  return repetition_penalty != 1.0f || frequency_penalty != 0.0f ||
         presence_penalty != 0.0f || no_repeat_ngram_size > 0 ||
         num_bad_word_tokens() > std::ssize(bad_words) ||
         num_biased_tokens() > std::ssize(sequence_bias);
}

int64_t ScoreProcessors::num_bad_word_tokens() const {
  return CountTokens(bad_words, [](const auto& word) { return word.size(); });
}

int64_t ScoreProcessors::num_biased_tokens() const {
  return CountTokens(sequence_bias, [](const SequenceTokenBias& sequence) {
    return sequence.tokens.size();
  });
}

bool ScoreProcessors::has_edits_by_place() const {
  return !forced_last_tokens.empty() || !eos_decay.tokens.empty() ||
         (!begin_suppress_tokens.empty() && begin_index > 0);
}

RowEdits CollectEdits(const ScoreProcessors& processors,
                      std::span<const TokenId> history, int num_generated,
                      int vocab_size, const std::span<const TokenId>* allowed) {
  RowEdits row;
  const ScoreEdits edits(processors);
  const ScoreEdits::View view = edits.OfRow({.tail = history,
                                             .num_generated = num_generated,
                                             .vocab_size = vocab_size,
                                             .allowed = allowed},
                                            &row.edits);
  if (view.edits.data() != row.edits.data()) {
    row.edits.assign(view.edits.begin(), view.edits.end());
  }
  row.is_allow_list = view.is_allow_list;
  return row;
}

int64_t MaxEdits(const ScoreProcessors& processors, int64_t num_tokens,
                 int vocab_size) {
  const int64_t num_forced = std::max(processors.forced_first_tokens.size(),
                                      processors.forced_last_tokens.size());
  if (processors.allowed_tokens.has_value()) {
    return std::max<int64_t>(processors.allowed_tokens->size(), num_forced);
  }
  int64_t count = processors.logit_bias.size() + processors.bad_words.size() +
                  processors.sequence_bias.size();
  count += processors.suppress_tokens.size() +
           processors.begin_suppress_tokens.size() +
           processors.eos_decay.tokens.size();
  if (processors.min_new_tokens > 0) count += processors.eos_token_ids.size();
  // Penalties and n-grams edit tokens of the history, each once.
  if (processors.repetition_penalty != 1.0f ||
      processors.frequency_penalty != 0.0f ||
      processors.presence_penalty != 0.0f ||
      processors.no_repeat_ngram_size > 0) {
    count += num_tokens;
  }
  return std::min<int64_t>(std::max(count, num_forced), vocab_size);
}

}  // namespace espalier
