#include "speculate/suffix_automaton.h"

#include <algorithm>

#include "base/hash.h"

namespace espalier {
namespace {

// The hash is keyed. With a known hash, a prompt could be chosen whose edges
// all collide, so that each would be compared with all others.
uint64_t HashOfEdge(int32_t source, TokenId token) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(source)} << 32 |
                       static_cast<uint32_t>(token);
  return HashOf(key);
}

}  // namespace

SuffixAutomaton::SuffixAutomaton() {
  states_.PushBack({});
  slots_.Assign(64, 0);
}

size_t SuffixAutomaton::SlotOf(State source, TokenId token) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = HashOfEdge(source, token) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const Edge& edge = edges_[slots_[slot] - 1];
    if (edge.source == source && edge.token == token) break;
  }
  return slot;
}

size_t SuffixAutomaton::MaxProbes() const {
  const size_t mask = slots_.size() - 1;
  size_t most = 0;
  for (size_t i = 0; i < edges_.size(); ++i) {
    const Edge& edge = edges_[i];
    const size_t first = HashOfEdge(edge.source, edge.token);
    most =
        std::max(most, ((SlotOf(edge.source, edge.token) - first) & mask) + 1);
  }
  return most;
}

int32_t SuffixAutomaton::FindEdge(State source, TokenId token) const {
  return slots_[SlotOf(source, token)] - 1;
}

void SuffixAutomaton::GrowSlots() {
  slots_.Assign(2 * slots_.size(), 0);
  for (size_t i = 0; i < edges_.size(); ++i) {
    const size_t slot = SlotOf(edges_[i].source, edges_[i].token);
    slots_.Mutable(slot) = static_cast<int32_t>(i + 1);
  }
}

int32_t SuffixAutomaton::AddEdge(State source, TokenId token, State target,
                                 int32_t count) {
  if (2 * (edges_.size() + 1) > slots_.size()) GrowSlots();
  slots_.Mutable(SlotOf(source, token)) =
      static_cast<int32_t>(edges_.size() + 1);
  const auto edge = static_cast<int32_t>(edges_.size());
  Node& node = states_.Mutable(source);
  edges_.PushBack({source, token, target, count, node.first_edge});
  node.first_edge = edge;
  return edge;
}

void SuffixAutomaton::MakeBestIfSo(int32_t edge) {
  Node& node = states_.Mutable(edges_[edge].source);
  if (node.best_edge >= 0 && edges_[node.best_edge].count > edges_[edge].count)
    return;
  node.best_edge = edge;
}

SuffixAutomaton::State SuffixAutomaton::Split(State state, TokenId token,
                                              State target) {
  const auto split = static_cast<State>(states_.size());
  const Node whole = states_[target];
  states_.PushBack({length(state) + 1, whole.link, -1, -1});
  for (int32_t edge = whole.first_edge; edge >= 0;) {
    const Edge copied = edges_[edge];
    const int32_t copy =
        AddEdge(split, copied.token, copied.target, copied.count);
    if (edge == whole.best_edge) states_.Mutable(split).best_edge = copy;
    edge = copied.next_edge;
  }
  states_.Mutable(target).link = split;
  for (State s = state; s >= 0; s = link(s)) {
    const int32_t edge = FindEdge(s, token);
    if (edges_[edge].target != target) break;
    edges_.Mutable(edge).target = split;
  }
  return split;
}

void SuffixAutomaton::Append(TokenId token) {
  const auto whole = static_cast<State>(states_.size());
  states_.PushBack({length(last_) + 1, kRoot, -1, -1});
  State state = last_;
  int32_t edge = -1;
  for (; state >= 0; state = link(state)) {
    edge = FindEdge(state, token);
    if (edge >= 0) break;
    MakeBestIfSo(AddEdge(state, token, whole, 1));
  }
  if (state >= 0) {
    ++edges_.Mutable(edge).count;
    MakeBestIfSo(edge);
    const State target = edges_[edge].target;
    const bool is_whole_class = length(target) == length(state) + 1;
    states_.Mutable(whole).link =
        is_whole_class ? target : Split(state, token, target);
  }
  last_ = whole;
}

}  // namespace espalier
