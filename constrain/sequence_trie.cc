#include "constrain/sequence_trie.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace espalier {
namespace {

using TokenList = const std::vector<int64_t>*;

// Sequences that share their first `depth` tokens, which are a node.
struct NodeRange {
  size_t begin;
  size_t end;
  size_t depth;
};

// Tokens of all sequences in one array: a vector for each would cost a cache
// miss for every token read.
class FlatSequences {
 public:
  explicit FlatSequences(std::span<const TokenList> sequences) {
    for (const TokenList sequence : sequences) {
      tokens_.insert(tokens_.end(), sequence->begin(), sequence->end());
      ends_.push_back(tokens_.size());
    }
  }

  std::span<const TokenId> operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(tokens_).subspan(begin, ends_[i] - begin);
  }

  // Returns the indices of the sequences in ascending order.
  std::vector<size_t> Sorted() const {
    std::vector<std::pair<uint64_t, size_t>> keyed;
    for (size_t i = 0; i < ends_.size(); ++i) keyed.push_back({Key(i), i});
    std::sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
      if (a.first != b.first) return a.first < b.first;
      return std::ranges::lexicographical_compare((*this)[a.second],
                                                  (*this)[b.second]);
    });
    std::vector<size_t> sorted;
    for (const auto& [key, i] : keyed) sorted.push_back(i);
    return sorted;
  }

 private:
  // Returns the first two tokens as a key, which orders most pairs without a
  // read of the rest. 0 is the end, which sorts first.
  uint64_t Key(size_t i) const {
    const std::span<const TokenId> tokens = (*this)[i];
    const uint64_t first = tokens.empty() ? 0 : tokens[0] + 1;
    const uint64_t second = tokens.size() < 2 ? 0 : tokens[1] + 1;
    return first << 32 | second;
  }

  std::vector<TokenId> tokens_;
  std::vector<size_t> ends_;
};

}  // namespace

// Creates nodes in the order of their numbers, so the queue holds the nodes
// whose children are not numbered yet.
SequenceTrie::SequenceTrie(std::span<const TokenList> sequences)
    : tokens_(1, 0) {
  const FlatSequences flat(sequences);
  const std::vector<size_t> sorted = flat.Sorted();
  std::vector<NodeRange> ranges = {{0, sorted.size(), 0}};
  std::vector<Node> parents = {kNone};
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    // A sequence that ends at this node sorts first.
    bool is_end = false;
    for (; begin < end && flat[sorted[begin]].size() == depth; ++begin) {
      is_end = depth > 0;
    }
    is_end_.push_back(is_end);
    num_sequences_ += is_end ? 1 : 0;
    first_child_.push_back(static_cast<Node>(ranges.size()));
    num_leaf_children_.push_back(0);
    if (begin == end && node > 0) ++num_leaf_children_[parents[node]];
    while (begin < end) {
      const TokenId token = flat[sorted[begin]][depth];
      const size_t first = begin;
      while (begin < end && flat[sorted[begin]][depth] == token) ++begin;
      ranges.push_back({first, begin, depth + 1});
      parents.push_back(static_cast<Node>(node));
      tokens_.push_back(token);
    }
  }
  first_child_.push_back(static_cast<Node>(ranges.size()));
}

SequenceTrie::Node SequenceTrie::Child(Node node, TokenId token) const {
  const std::span<const TokenId> next = Next(node);
  const auto found = std::ranges::lower_bound(next, token);
  if (found == next.end() || *found != token) return kNone;
  return first_child_[node] + static_cast<Node>(found - next.begin());
}

}  // namespace espalier
