#include "beam/allowed_sequences.h"

#include <algorithm>

#include "beam/selection_options.h"

namespace espalier {
namespace {

using Sequence = const std::vector<int64_t>*;

// Sequences that share their first `depth` tokens, which are a node.
struct Range {
  size_t begin;
  size_t end;
  size_t depth;
};

// Tokens before what ends it.
int64_t NumPlainTokens(const std::vector<int64_t>& sequence,
                       std::span<const TokenId> finishing) {
  const bool ends = !sequence.empty() &&
                    std::ranges::binary_search(finishing, sequence.back());
  return static_cast<int64_t>(sequence.size()) - (ends ? 1 : 0);
}

std::vector<Sequence> Sorted(std::span<const Sequence> sequences) {
  std::vector<Sequence> sorted(sequences.begin(), sequences.end());
  std::ranges::sort(sorted, [](Sequence a, Sequence b) { return *a < *b; });
  return sorted;
}

}  // namespace

std::shared_ptr<const AllowedSequences> AllowedSequences::Make(
    const GenerationParams& params) {
  if (!params.allowed_sequences.has_value()) return nullptr;
  const std::vector<TokenId> finishing = FinishingTokenIds(params);
  std::vector<Sequence> possible;
  for (const std::vector<int64_t>& sequence : *params.allowed_sequences) {
    if (NumPlainTokens(sequence, finishing) >= params.min_new_tokens) {
      possible.push_back(&sequence);
    }
  }
  return std::make_shared<const AllowedSequences>(possible);
}

// Nodes are made in the order of their numbers, so the ranges that wait are
// those of the nodes whose children are not numbered yet.
AllowedSequences::AllowedSequences(std::span<const Sequence> sequences)
    : tokens_(1, 0) {
  const std::vector<Sequence> sorted = Sorted(sequences);
  std::vector<Range> ranges = {{0, sorted.size(), 0}};
  std::vector<Node> parents = {kNone};
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    // What ends here sorts first.
    bool is_end = false;
    for (; begin < end && sorted[begin]->size() == depth; ++begin) {
      is_end = depth > 0;
    }
    is_end_.push_back(is_end);
    first_child_.push_back(static_cast<Node>(ranges.size()));
    num_dead_ends_.push_back(0);
    if (begin == end && node > 0) ++num_dead_ends_[parents[node]];
    while (begin < end) {
      const int64_t token = (*sorted[begin])[depth];
      const size_t first = begin;
      while (begin < end && (*sorted[begin])[depth] == token) ++begin;
      ranges.push_back({first, begin, depth + 1});
      parents.push_back(static_cast<Node>(node));
      tokens_.push_back(static_cast<TokenId>(token));
    }
  }
  first_child_.push_back(static_cast<Node>(ranges.size()));
}

AllowedSequences::Node AllowedSequences::Child(Node node, TokenId token) const {
  const std::span<const TokenId> next = Next(node);
  const auto found = std::ranges::lower_bound(next, token);
  if (found == next.end() || *found != token) return kNone;
  return first_child_[node] + static_cast<Node>(found - next.begin());
}

}  // namespace espalier
