#include "exec_request/draft_tree.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace espalier {

DraftTree::DraftTree(int num_beams, std::span<const int> ranks,
                     std::span<const std::vector<TokenId>> drafts)
    : num_beams_(num_beams), nodes_(num_beams) {
  CHECK_EQ(ranks.size(), drafts.size()) << "rows of paths";
  int num_logits_rows = 0;
  int num_begun = 0;  // beams that have a row
  for (size_t row = 0; row < ranks.size(); ++row) {
    int node = ranks[row];
    CHECK(node == num_begun - 1 || (node == num_begun && node < num_beams))
        << "row " << row << " of beam " << node << " of " << num_beams;
    if (node == num_begun) nodes_[num_begun++] = {static_cast<int>(row), 0};
    first_logits_rows_.push_back(num_logits_rows);
    const int length = static_cast<int>(drafts[row].size());
    num_logits_rows += length + 1;
    max_depth_ = std::max(max_depth_, length);
    for (int i = 0; i < length; ++i) {
      const auto [child, is_new] =
          children_.try_emplace({node, drafts[row][i]}, num_nodes());
      if (is_new) nodes_.push_back({static_cast<int>(row), i + 1});
      node = child->second;
    }
  }
  CHECK_EQ(num_begun, num_beams) << "beams with rows";
}

std::vector<int> DraftTree::Roots() const {
  std::vector<int> roots(num_beams_);
  std::iota(roots.begin(), roots.end(), 0);
  return roots;
}

int DraftTree::Child(int node, TokenId token) const {
  const auto child = children_.find({node, token});
  return child == children_.end() ? kNone : child->second;
}

std::vector<int> DraftTree::Follow(std::span<const int> nodes,
                                   std::span<const Candidate> candidates,
                                   std::span<const int> surviving) const {
  std::vector<int> next;
  for (const int i : surviving) {
    const Candidate& candidate = candidates[i];
    next.push_back(Child(nodes[candidate.beam], candidate.token));
    if (next.back() == kNone) return {};
  }
  return next;
}

}  // namespace espalier
