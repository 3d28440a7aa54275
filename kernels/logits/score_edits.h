// ScoreEdits: the edits of one request's rows (score_processors.h). What does
// not depend on a row is made once: the edits that every row has, those that
// the prompt's tokens lead to, and a trie of the bad words and of biased
// sequences. A step then pays for what is the row's own: its generated tokens,
// the sequences that end there, and one reading of the text where n-grams may
// not repeat. Requests that share long lists share what is made of these alone.
//
//   const ScoreEdits edits(processors, prompt);  // once a request
//   std::vector<TokenEdit> storage;              // of a row
//   const ScoreEdits::View view = edits.OfRow({.tail = tail, ...}, &storage);
//
// Thread safety: constant after construction.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/logits/edit_trie.h"
#include "kernels/logits/row_text.h"
#include "kernels/logits/score_processors.h"

namespace espalier {

class ScoreEdits {
 public:
  struct Row {
    // Tokens after the prompt; may be empty if !processors.needs_history().
    std::span<const TokenId> tail = {};
    int num_generated = 0;  // of these, at the end
    int vocab_size = 0;     // tokens outside [0, vocab_size) are left out
    // If not null: tokens that alone may follow here, ascending, each once;
    // beside processors.allowed_tokens.
    const std::span<const TokenId>* allowed = nullptr;
  };
  struct View {
    std::span<const TokenEdit> edits;  // ascending by token, each once
    bool is_allow_list = false;        // tokens without an edit are banned
  };

  // `prompt` is what the text of every row begins with; it is copied if edits
  // depend on it. Costs O(n log n) for n tokens in both.
  explicit ScoreEdits(const ScoreProcessors& processors,
                      std::span<const TokenId> prompt = {});

  // What the processors do to a row. The view is of `*storage`, or of this
  // object where the row has no edits of its own; that costs nothing. Else it
  // costs O(edits), and what is on of these: O(tail log tail) for penalties,
  // O(prompt + tail) for n-grams, O(longest of them) for sequences; and where
  // few tokens are allowed, O(log edits) for each instead of O(edits).
  View OfRow(const Row& row, std::vector<TokenEdit>* storage) const;

  // What the processors do to a row without a text. The view is of `*storage`,
  // or of this object.
  View WithoutText(int num_generated, int vocab_size,
                   std::vector<TokenEdit>* storage) const;

  // Whether the tokens of that place are forced: then nothing else is said of
  // it, whatever the text.
  bool is_forced(int num_generated) const {
    return ForcedAt(num_generated) != nullptr;
  }

  // Empty if no edit depends on it.
  const std::vector<TokenId>& prompt() const { return prompt_; }

 private:
  // Edits that many rows share, by their place.
  struct Places {
    std::vector<TokenEdit> before_min;  // while min_new_tokens bans the EOS ids
    std::vector<TokenEdit> after_min;
    std::vector<TokenEdit> at_begin;  // after begin_index_ tokens
  };
  // Edits by the processors' lists alone, whatever the text.
  struct OfLists {
    explicit OfLists(const ScoreProcessors& processors);

    EditTrie sequences;
    Places places;
  };
  static std::shared_ptr<const OfLists> MakeOfLists(
      const ScoreProcessors& processors);

  // Edits of `without_text` and of the prompt's tokens together.
  std::vector<TokenEdit> WithPrompt(
      const ScoreProcessors& processors,
      std::span<const TokenEdit> without_text) const;
  // Those of a place whose tokens are forced; null: another place.
  const std::vector<TokenEdit>* ForcedAt(int num_generated) const;
  const std::vector<TokenEdit>& At(const Places& places,
                                   int num_generated) const;

  // Of a row's own tokens and place, each token once.
  std::vector<TokenEdit> OwnEdits(const Row& row) const;
  std::vector<TokenEdit> DecayEdits(int num_generated) const;
  // `own` beside edits that many rows share, of which nothing is restricted but
  // by allowed tokens of the processors.
  void Merge(std::span<const TokenEdit> shared, std::span<const TokenEdit> own,
             std::vector<TokenEdit>* merged) const;
  void EditByText(const Row& row, std::vector<TokenEdit>* edits) const;
  void PenaliseTail(std::span<const TokenId> tail, int num_generated,
                    std::vector<TokenEdit>* edits) const;

  // Constant after construction.
  const float repetition_penalty_;
  const float frequency_penalty_;
  const float presence_penalty_;
  const int ngram_size_;
  const int min_new_tokens_;
  const bool needs_history_;
  const bool restricts_;  // there are allowed tokens
  const std::vector<TokenId> prompt_;
  const bool prompt_has_edits_;
  const int begin_index_;  // -1: there is no such place
  const EosDecay decay_;   // its tokens ascending, each once
  const std::shared_ptr<const OfLists> of_lists_;
  Places with_prompt_;  // empty unless prompt_has_edits_
  // Of the first place, and of the last of max_new_tokens; empty: none.
  std::vector<TokenEdit> forced_first_;
  std::vector<TokenEdit> forced_last_;
  const int max_new_tokens_;
};

}  // namespace espalier
