#include "kernels/logits/bad_word_trie.h"

#include "base/check.h"

namespace espalier {

void BadWordTrie::Add(std::span<const TokenId> word) {
  CHECK_GE(word.size(), size_t{2}) << "tokens of a bad word";
  int node = 0;
  for (size_t i = word.size() - 1; i > 0; --i) {
    const auto [child, is_new] = children_.try_emplace(
        Key(node, word[i - 1]), static_cast<int>(last_.size()));
    if (is_new) last_.emplace_back();
    node = child->second;
  }
  last_[node].push_back(word.back());
}

void BadWordTrie::AppendDue(const RowText& text,
                            std::vector<TokenId>* tokens) const {
  int node = 0;
  // Words of node d are d + 1 tokens long, which the text has.
  for (size_t depth = 1; depth < text.size(); ++depth) {
    const auto child = children_.find(Key(node, text[text.size() - depth]));
    if (child == children_.end()) return;
    node = child->second;
    tokens->insert(tokens->end(), last_[node].begin(), last_[node].end());
  }
}

}  // namespace espalier
