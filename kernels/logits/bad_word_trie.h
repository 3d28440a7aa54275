// BadWordTrie: the bad words of several tokens, by the tokens before their last
// one, read from its end. The words that a text is about to complete lie on the
// path of its last tokens, so that they are found in one walk, however many
// words there are.
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

namespace espalier {

class BadWordTrie {
 public:
  // REQUIRES: at least two tokens.
  void Add(std::span<const TokenId> word);

  // Appends the last tokens of the words that `text` could complete with its
  // next token; a token may come more than once. A word longer than the text
  // waits. Costs O(longest word + tokens found).
  void AppendDue(const RowText& text, std::vector<TokenId>* tokens) const;

 private:
  static uint64_t Key(int node, TokenId token) {
    return uint64_t{static_cast<uint32_t>(node)} << 32 |
           static_cast<uint32_t>(token);
  }

  std::unordered_map<uint64_t, int> children_;     // by node and token
  std::vector<std::vector<TokenId>> last_ = {{}};  // [nodes], of words
};

}  // namespace espalier
