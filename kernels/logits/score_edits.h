// ScoreEdits: the edits of one request's rows (score_processors.h). Edits that
// do not depend on a row are computed once: those of every row, those of the
// prompt's tokens, and a trie of the bad words and of biased sequences. A step
// then costs only the row's own edits: its generated tokens, the sequences that
// end there, and one scan of the text if n-grams may not repeat. Requests with
// equal lists share the edits that depend on the lists alone.
//
//   const ScoreEdits edits(processors, prompt);  // once a request
//   std::vector<TokenEdit> storage;              // once a row
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
    int num_generated = 0;  // at the end of `tail`
    int vocab_size = 0;     // tokens outside [0, vocab_size) are left out
    // If not null: the only tokens that may follow here, ascending, each once;
    // in addition to processors.allowed_tokens.
    const std::span<const TokenId>* allowed = nullptr;
  };
  struct View {
    std::span<const TokenEdit> edits;  // ascending by token, each once
    bool is_allow_list = false;        // tokens without an edit are banned
  };

  // `prompt` begins the text of every row. It is copied if edits depend on it.
  // Costs O(n log n) for n tokens in both.
  explicit ScoreEdits(const ScoreProcessors& processors,
                      std::span<const TokenId> prompt = {});

  // Returns the edits of a row. The view is of `*storage`, or of this object if
  // the row has no edits of its own, which costs nothing. Else it costs
  // O(edits), and for enabled processors: O(tail log tail) for penalties,
  // O(prompt + tail) for n-grams, O(longest of them) for sequences. If few
  // tokens are allowed, it costs O(log edits) for each instead of O(edits).
  View OfRow(const Row& row, std::vector<TokenEdit>* storage) const;

  // Returns the edits of a row without a text. The view is of `*storage`, or of
  // this object.
  View WithoutText(int num_generated, int vocab_size,
                   std::vector<TokenEdit>* storage) const;

  // True if the token at that place is forced. Then there are no other edits,
  // whatever the text.
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
  // Edits that depend on the processors' lists only.
  struct OfLists {
    explicit OfLists(const ScoreProcessors& processors);

    EditTrie sequences;
    Places places;
  };
  static std::shared_ptr<const OfLists> MakeOfLists(
      const ScoreProcessors& processors);

  // Merges `without_text` with the edits of the prompt's tokens.
  std::vector<TokenEdit> WithPrompt(
      const ScoreProcessors& processors,
      std::span<const TokenEdit> without_text) const;
  // Returns the edits of a place whose token is forced, else null.
  const std::vector<TokenEdit>* ForcedAt(int num_generated) const;
  const std::vector<TokenEdit>& At(const Places& places,
                                   int num_generated) const;

  // Returns the edits of a row's own tokens and place, each token once.
  std::vector<TokenEdit> OwnEdits(const Row& row) const;
  std::vector<TokenEdit> DecayEdits(int num_generated) const;
  // Merges `own` with shared edits, which are restricted by the allowed tokens
  // of the processors only.
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
  const int begin_index_;  // -1: none
  const EosDecay decay_;   // its tokens ascending, each once
  const std::shared_ptr<const OfLists> of_lists_;
  Places with_prompt_;  // empty unless prompt_has_edits_
  // Edits of the first place, and of the last of max_new_tokens; empty: none.
  std::vector<TokenEdit> forced_first_;
  std::vector<TokenEdit> forced_last_;
  const int max_new_tokens_;
};

}  // namespace espalier
