#include "kernels/logits/edit_trie.h"

#include "base/check.h"

namespace espalier {

void EditTrie::Add(std::span<const TokenId> sequence, TokenEdit edit) {
  CHECK_GE(sequence.size(), size_t{2}) << "tokens of a sequence";
  int node = 0;
  for (size_t i = sequence.size() - 1; i > 0; --i) {
    const auto [child, is_new] = children_.try_emplace(
        Key(node, sequence[i - 1]), static_cast<int>(last_.size()));
    if (is_new) last_.emplace_back();
    node = child->second;
  }
  edit.token = sequence.back();
  last_[node].push_back(edit);
}

void EditTrie::AppendDue(const RowText& text,
                         std::vector<TokenEdit>* edits) const {
  int node = 0;
  for (size_t depth = 1; depth <= text.size(); ++depth) {
    const auto child = children_.find(Key(node, text[text.size() - depth]));
    if (child == children_.end()) return;
    node = child->second;
    edits->insert(edits->end(), last_[node].begin(), last_[node].end());
  }
}

}  // namespace espalier
