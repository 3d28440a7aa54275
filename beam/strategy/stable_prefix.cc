#include "beam/strategy/stable_prefix.h"

#include <algorithm>
#include <utility>

namespace espalier {

StablePrefix::StablePrefix() : places_(1), ends_{kRoot} { Use(kRoot); }

std::vector<TokenId> StablePrefix::Update(
    const TokenTree& tree, std::span<const TokenTree::Node> nodes) {
  if (nodes.empty()) return {};
  std::vector<int> ends;
  for (const TokenTree::Node node : nodes) ends.push_back(PlaceOf(tree, node));
  // Use before Leave, so that common places stay in use.
  for (const int end : ends) Use(end);
  for (const int end : ends_) Leave(end);
  ends_ = std::move(ends);
  std::vector<TokenId> grown;
  // A place with one use, which is a child and no end, has one continuation.
  while (places_[stable_].num_uses == 1 && places_[stable_].child_xor != 0) {
    stable_ = places_[stable_].child_xor;
    grown.push_back(places_[stable_].token);
  }
  return grown;
}

bool StablePrefix::is_everything() const {
  return std::all_of(ends_.begin(), ends_.end(),
                     [&](int end) { return end == stable_; });
}

// Usually the parent was a live sequence, so its place is set.
int StablePrefix::PlaceOf(const TokenTree& tree, TokenTree::Node node) {
  if (place_of_.size() < tree.num_nodes()) {
    place_of_.resize(tree.num_nodes(), kNone);
  }
  std::vector<TokenTree::Node> unknown;  // from `node` upwards
  while (node != TokenTree::kRoot && place_of_[node] == kNone) {
    unknown.push_back(node);
    node = tree.parent(node);
  }
  int place = node == TokenTree::kRoot ? kRoot : place_of_[node];
  for (; !unknown.empty(); unknown.pop_back()) {
    place = ChildOf(place, tree.token(unknown.back()));
    place_of_[unknown.back()] = place;
  }
  return place;
}

int StablePrefix::ChildOf(int parent, TokenId token) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(parent)} << 32 |
                       static_cast<uint32_t>(token);
  const auto [child, is_new] =
      children_.emplace(key, static_cast<int>(places_.size()));
  if (is_new) places_.push_back({.parent = parent, .token = token});
  return child->second;
}

void StablePrefix::Use(int place) {
  while (places_[place].num_uses++ == 0 && place != kRoot) {
    const int parent = places_[place].parent;
    places_[parent].child_xor ^= place;
    place = parent;
  }
}

void StablePrefix::Leave(int place) {
  while (--places_[place].num_uses == 0 && place != kRoot) {
    const int parent = places_[place].parent;
    places_[parent].child_xor ^= place;
    place = parent;
  }
}

}  // namespace espalier
