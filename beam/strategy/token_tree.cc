#include "beam/strategy/token_tree.h"

namespace espalier {

std::vector<TokenId> TokenTree::Path(Node node) const {
  std::vector<TokenId> tokens;
  AppendPath(node, &tokens);
  return tokens;
}

void TokenTree::AppendPath(Node node, std::vector<TokenId>* tokens) const {
  if (node == kRoot) return;
  size_t end = tokens->size() + nodes_[node].depth;
  tokens->resize(end);
  for (; node != kRoot; node = nodes_[node].parent) {
    (*tokens)[--end] = nodes_[node].token;
  }
}

}  // namespace espalier
