// EditTrie: sequences of several tokens whose last token is edited when a text
// is about to complete them (bad words, biases of sequences). The trie is
// indexed by the tokens before the last one, from the end. The sequences that a
// text is about to complete are on the path of its last tokens, so that one
// walk finds them, however many there are.
// walk, however many there are.
//
//   {5, 6, 7}, {4, 6, 8}, {6, 9}:    root - 6 (9) - 5 (7)
//                                               \- 4 (8)
//
// Thread safety: constant after the last Add.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "kernels/logits/row_text.h"
#include "kernels/logits/score_processors.h"

namespace espalier {

class EditTrie {
 public:
  // `edit` is applied to the last token, whatever its own token.
  // REQUIRES: at least two tokens.
  void Add(std::span<const TokenId> sequence, TokenEdit edit);

  // Appends the edits of the sequences that `text` could complete with its next
  // token; a token may occur more than once. Costs O(longest sequence + edits
  // found).
  void AppendDue(const RowText& text, std::vector<TokenEdit>* edits) const;

 private:
  static uint64_t Key(int node, TokenId token) {
    return uint64_t{static_cast<uint32_t>(node)} << 32 |
           static_cast<uint32_t>(token);
  }

  std::unordered_map<uint64_t, int> children_;       // by node and token
  std::vector<std::vector<TokenEdit>> last_ = {{}};  // [nodes], of sequences
};

}  // namespace espalier
