#include "constrain/minimize_dfa.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "constrain/number_table.h"

namespace espalier {
namespace {

using Edge = DfaEdges::Edge;

// Divides states by signatures: sums of hashes of what their edges lead to.
// Equal states always have equal signatures, so what these tell apart is not
// equal. States that they do not tell apart are compared in the end.
class StatePartition {
 public:
  StatePartition(const DfaEdges& dfa, std::span<const int32_t> first,
                 std::span<const int32_t> distances,
                 std::span<const int32_t> order, const HashKey& key)
      : dfa_(dfa),
        first_(first),
        distances_(distances),
        order_(order),
        key_(key),
        signatures_(dfa.num_states(), 0) {
    blocks_.block_of.assign(dfa.num_states(), -1);
    for (int c = 0; c <= dfa.num_classes; ++c) {
      class_keys_[c] = HashOfNumber(2 * static_cast<uint64_t>(c));
    }
  }

  // Returns the blocks, or none if unequal states have one signature.
  DfaBlocks Run() && {
    SignByDistance();
    SignByDistance();
    GroupBySignature();
    if (blocks_.members.size() == order_.size()) return std::move(blocks_);
    if (!AreBlocksEqual()) {
      Refine();
      if (!AreBlocksEqual()) return {};
    }
    return std::move(blocks_);
  }

 private:
  std::span<const Edge> EdgesOf(int32_t state) const {
    return std::span(dfa_.edges)
        .subspan(first_[state], first_[state + 1] - first_[state]);
  }

  // Signs the states of one distance after those of smaller ones, so that a
  // first pass tells apart what the texts to the nearest end do, and a second
  // one what follows on other ways, such as the keys after an optional one.
  void SignByDistance() {
    std::vector<uint64_t> fresh;
    for (size_t begin = 0; begin < order_.size(); begin += fresh.size()) {
      const int32_t distance = distances_[order_[begin]];
      fresh.clear();
      for (size_t i = begin;
           i < order_.size() && distances_[order_[i]] == distance; ++i) {
        uint64_t sum = HashOf(static_cast<uint64_t>(distance), key_);
        for (const Edge& edge : EdgesOf(order_[i])) {
          sum += FactorOf(edge) * signatures_[edge.to];
        }
        fresh.push_back(HashOf(sum, key_));
      }
      for (size_t i = 0; i < fresh.size(); ++i) {
        signatures_[order_[begin + i]] = fresh[i];
      }
    }
  }

  // Makes states with one signature one block.
  void GroupBySignature() {
    NumberTable numbers;
    for (const int32_t state : order_) {
      const uint64_t signature = signatures_[state];
      const auto next = static_cast<int32_t>(blocks_.members.size());
      blocks_.block_of[state] =
          numbers.FindOrAdd(HashOf(signature, key_), next, [&](int32_t block) {
            return signatures_[blocks_.members[block]] == signature;
          });
      if (blocks_.block_of[state] == next) blocks_.members.push_back(state);
    }
  }

  // True if the states of each block lead to the same blocks.
  bool AreBlocksEqual() const {
    return std::ranges::all_of(order_, [&](int32_t state) {
      const int32_t member = blocks_.members[blocks_.block_of[state]];
      return member == state || (dfa_.accepts[member] == dfa_.accepts[state] &&
                                 AreEqual(EdgesOf(member), EdgesOf(state)));
    });
  }

  // True if edges lead to the same blocks, however their classes are divided.
  bool AreEqual(std::span<const Edge> a, std::span<const Edge> b) const {
    size_t i = 0;
    size_t j = 0;
    for (int next = 0; i < a.size() && j < b.size();) {  // class
      if (std::max<int>(a[i].first, next) != std::max<int>(b[j].first, next) ||
          blocks_.block_of[a[i].to] != blocks_.block_of[b[j].to]) {
        return false;
      }
      next = std::min(a[i].last, b[j].last) + 1;
      if (a[i].last < next) ++i;
      if (b[j].last < next) ++j;
    }
    return i == a.size() && j == b.size();
  }

  // Differences of single hashes of small numbers are alike. Even numbers are
  // of classes, odd ones of blocks: else products of differences would be, too.
  uint64_t HashOfNumber(uint64_t number) const {
    return HashOf(HashOf(number, key_), key_);
  }
  // An edge adds the product of this and a number of the state that it leads
  // to. So it is the sum of those of its classes.
  uint64_t FactorOf(const Edge& edge) const {
    return class_keys_[edge.last + 1] - class_keys_[edge.first];
  }
  uint64_t HashOfBlock(int32_t block) const {
    return HashOfNumber(2 * static_cast<uint64_t>(block) + 1);
  }

  // Divides blocks whose states lead to different ones until there are none.
  void Refine() {
    IndexEdgesTo();
    SortByBlock();
    for (const int32_t state : order_) {
      uint64_t sum = 0;
      for (const Edge& edge : EdgesOf(state)) {
        sum += FactorOf(edge) * HashOfBlock(blocks_.block_of[edge.to]);
      }
      signatures_[state] = sum;
    }
    touched_.resize(blocks_.members.size());
    for (const int32_t state : order_) Touch(state);
    while (!open_.empty()) {
      const int32_t block = open_.back();
      open_.pop_back();
      Divide(block);
    }
  }

  void IndexEdgesTo() {
    first_to_.assign(dfa_.num_states() + 1, 0);
    for (const Edge& edge : dfa_.edges) ++first_to_[edge.to + 1];
    for (int s = 0; s < dfa_.num_states(); ++s) {
      first_to_[s + 1] += first_to_[s];
    }
    edges_to_.resize(dfa_.edges.size());
    std::vector<int32_t> next(first_to_.begin(), first_to_.end() - 1);
    for (const Edge& edge : dfa_.edges) edges_to_[next[edge.to]++] = edge;
  }

  // Puts the states of a block next to one another.
  void SortByBlock() {
    places_.assign(dfa_.num_states(), 0);
    first_of_.assign(blocks_.members.size(), 0);
    for (const int32_t state : order_) ++first_of_[blocks_.block_of[state]];
    int32_t num_before = 0;
    for (int32_t& first : first_of_) {
      end_of_.push_back(num_before);
      first = std::exchange(num_before, num_before + first);
    }
    states_.resize(order_.size());
    for (const int32_t state : order_) {
      places_[state] = end_of_[blocks_.block_of[state]]++;
      states_[places_[state]] = state;
    }
  }

  void Swap(int32_t place, int32_t other) {
    std::swap(states_[place], states_[other]);
    places_[states_[place]] = place;
    places_[states_[other]] = other;
  }

  // Moves a state to the front of its block, with those whose signatures may
  // have changed, if it has others. All others of a block have one signature.
  void Touch(int32_t state) {
    const int32_t block = blocks_.block_of[state];
    if (end_of_[block] - first_of_[block] == 1) return;
    const int32_t front = first_of_[block] + touched_[block];
    if (places_[state] < front) return;
    Swap(places_[state], front);
    if (touched_[block]++ == 0) open_.push_back(block);
  }

  // Makes each signature's states a block. The most keep the number, so that a
  // state has log(states) numbers at most.
  void Divide(int32_t block) {
    const int32_t begin = first_of_[block];
    const int32_t middle = begin + std::exchange(touched_[block], 0);
    const int32_t end = end_of_[block];
    const auto signature_at = [&](int32_t place) {
      return signatures_[states_[place]];
    };
    std::sort(
        states_.begin() + begin, states_.begin() + middle,
        [&](int32_t a, int32_t b) { return signatures_[a] < signatures_[b]; });
    for (int32_t i = begin; i < middle; ++i) places_[states_[i]] = i;
    // Ranges of places, of which the last has the states that are not touched.
    std::vector<std::pair<int32_t, int32_t>> parts;
    for (int32_t i = begin, next = begin; i < middle; i = next) {
      while (next < middle && signature_at(next) == signature_at(i)) ++next;
      parts.emplace_back(i, next);
    }
    if (middle < end) {
      // Touched states that are like the others join these.
      const auto same = std::ranges::find_if(parts, [&](const auto& part) {
        return signature_at(part.first) == signature_at(middle);
      });
      if (same == parts.end()) {
        parts.emplace_back(middle, end);
      } else {
        const int32_t num_same = same->second - same->first;
        for (auto part = same + 1; part != parts.end(); ++part) {
          part->first -= num_same;
          part->second -= num_same;
        }
        std::rotate(states_.begin() + same->first,
                    states_.begin() + same->second, states_.begin() + middle);
        for (int32_t i = same->first; i < middle; ++i) places_[states_[i]] = i;
        parts.erase(same);
        parts.emplace_back(middle - num_same, end);
      }
    }
    const auto most = std::ranges::max_element(
        parts, {}, [](const auto& part) { return part.second - part.first; });
    first_of_[block] = most->first;
    end_of_[block] = most->second;
    blocks_.members[block] = states_[most->first];
    const auto num_blocks = static_cast<int32_t>(blocks_.members.size());
    for (const auto& part : parts) {
      if (part != *most) AddBlock(part.first, part.second);
    }
    for (auto added = num_blocks; added < std::ssize(first_of_); ++added) {
      SignEdgesTo(added, block);
    }
  }

  // Makes the states of some places a block.
  void AddBlock(int32_t begin, int32_t end) {
    const auto block = static_cast<int32_t>(blocks_.members.size());
    for (int32_t i = begin; i < end; ++i) blocks_.block_of[states_[i]] = block;
    blocks_.members.push_back(states_[begin]);
    first_of_.push_back(begin);
    end_of_.push_back(end);
    touched_.push_back(0);
  }

  // Changes the signatures of states that lead to a block, which was a part of
  // `old`.
  void SignEdgesTo(int32_t block, int32_t old) {
    changed_.assign(states_.begin() + first_of_[block],
                    states_.begin() + end_of_[block]);
    const uint64_t change = HashOfBlock(block) - HashOfBlock(old);
    for (const int32_t state : changed_) {  // Touch moves them
      for (int32_t i = first_to_[state]; i < first_to_[state + 1]; ++i) {
        const Edge& edge = edges_to_[i];
        signatures_[edge.from] += FactorOf(edge) * change;
        Touch(edge.from);
      }
    }
  }

  const DfaEdges& dfa_;
  const std::span<const int32_t> first_;
  const std::span<const int32_t> distances_;
  const std::span<const int32_t> order_;
  const HashKey key_;
  std::array<uint64_t, 257> class_keys_ = {};
  std::vector<uint64_t> signatures_;  // [num_states]
  DfaBlocks blocks_;
  // The rest is of Refine.
  std::vector<int32_t> first_to_;  // [num_states + 1], into edges_to_
  std::vector<Edge> edges_to_;     // by the state that they lead to
  std::vector<int32_t> states_;    // by block, the touched ones first
  std::vector<int32_t> places_;    // [num_states], in states_
  std::vector<int32_t> first_of_;  // [num_blocks], in states_
  std::vector<int32_t> end_of_;    // [num_blocks], in states_
  std::vector<int32_t> touched_;   // [num_blocks]  number of states
  std::vector<int32_t> open_;      // blocks with touched states
  std::vector<int32_t> changed_;   // work of SignEdgesTo
};

}  // namespace

DfaBlocks MinimizeDfa(const DfaEdges& dfa, std::span<const int32_t> first,
                      std::span<const int32_t> distances,
                      std::span<const int32_t> order, HashKey key) {
  while (true) {
    DfaBlocks blocks = StatePartition(dfa, first, distances, order, key).Run();
    if (!blocks.members.empty() || order.empty()) return blocks;
    key = HashKey::Random();  // two sums were the same
  }
}

}  // namespace espalier
