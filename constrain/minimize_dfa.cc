#include "constrain/minimize_dfa.h"

#include <cstddef>
#include <numeric>
#include <utility>

namespace espalier {
namespace {

// A partition of [0, n) into sets that are split: Mark moves elements to the
// front of their set, and Split makes the marked and the unmarked elements of
// each touched set two sets, of which the smaller one is new.
class RefinablePartition {
 public:
  explicit RefinablePartition(int32_t n)
      : elements_(n), place_(n), set_(n, 0), first_{0}, end_{n}, marked_{0} {
    std::iota(elements_.begin(), elements_.end(), 0);
    std::iota(place_.begin(), place_.end(), 0);
    if (n == 0) {
      first_.clear();
      end_.clear();
      marked_.clear();
    }
  }

  // Makes the sets those of equal `keys`, [n] in [0, num_keys).
  void Group(const std::vector<int32_t>& keys, int32_t num_keys) {
    std::vector<int32_t> begin(num_keys + 1, 0);
    for (const int32_t key : keys) ++begin[key + 1];
    for (int32_t k = 0; k < num_keys; ++k) begin[k + 1] += begin[k];
    first_.clear();
    end_.clear();
    std::vector<int32_t> next(begin.begin(), begin.end() - 1);
    std::vector<int32_t> set_of(num_keys, -1);
    for (int32_t k = 0; k < num_keys; ++k) {
      if (begin[k] == begin[k + 1]) continue;
      set_of[k] = static_cast<int32_t>(first_.size());
      first_.push_back(begin[k]);
      end_.push_back(begin[k + 1]);
    }
    marked_.assign(first_.size(), 0);
    for (int32_t i = 0; i < static_cast<int32_t>(keys.size()); ++i) {
      place_[i] = next[keys[i]]++;
      elements_[place_[i]] = i;
      set_[i] = set_of[keys[i]];
    }
  }

  int32_t num_sets() const { return static_cast<int32_t>(first_.size()); }
  int32_t set_of(int32_t element) const { return set_[element]; }
  int32_t first(int32_t set) const { return first_[set]; }
  int32_t end(int32_t set) const { return end_[set]; }
  int32_t element(int32_t place) const { return elements_[place]; }

  // An element may be marked once before the next Split.
  void Mark(int32_t element) {
    const int32_t set = set_[element];
    const int32_t target = first_[set] + marked_[set];
    const int32_t source = place_[element];
    std::swap(elements_[source], elements_[target]);
    place_[elements_[source]] = source;
    place_[elements_[target]] = target;
    if (marked_[set]++ == 0) touched_.push_back(set);
  }

  void Split() {
    for (const int32_t set : touched_) SplitSet(set);
    touched_.clear();
  }

 private:
  void SplitSet(int32_t set) {
    const int32_t middle = first_[set] + marked_[set];
    marked_[set] = 0;
    if (middle == end_[set]) return;
    const int32_t added = num_sets();
    if (middle - first_[set] <= end_[set] - middle) {
      first_.push_back(first_[set]);
      end_.push_back(middle);
      first_[set] = middle;
    } else {
      first_.push_back(middle);
      end_.push_back(end_[set]);
      end_[set] = middle;
    }
    marked_.push_back(0);
    for (int32_t i = first_[added]; i < end_[added]; ++i) {
      set_[elements_[i]] = added;
    }
  }

  std::vector<int32_t> elements_;  // sets are ranges of places
  std::vector<int32_t> place_;     // index in elements_ by element
  std::vector<int32_t> set_;       // set by element
  std::vector<int32_t> first_;     // first place by set
  std::vector<int32_t> end_;
  std::vector<int32_t> marked_;
  std::vector<int32_t> touched_;  // sets with marked elements
};

// Edges by the state that they lead to.
struct EdgesTo {
  explicit EdgesTo(const DfaEdges& dfa)
      : first(dfa.num_states() + 1, 0), edges(dfa.edges.size()) {
    for (const DfaEdges::Edge& edge : dfa.edges) ++first[edge.to + 1];
    for (int s = 0; s < dfa.num_states(); ++s) first[s + 1] += first[s];
    std::vector<int32_t> next(first.begin(), first.end() - 1);
    for (size_t i = 0; i < dfa.edges.size(); ++i) {
      edges[next[dfa.edges[i].to]++] = static_cast<int32_t>(i);
    }
  }

  std::vector<int32_t> first;  // [num_states + 1], into `edges`
  std::vector<int32_t> edges;
};

}  // namespace

// Blocks of states and cords of edges are refined in turn. A cord has edges of
// one class into one block; its sources differ from all other states.
std::vector<int32_t> MinimizeDfa(const DfaEdges& dfa) {
  RefinablePartition blocks(dfa.num_states());
  for (int32_t s = 0; s < dfa.num_states(); ++s) {
    if (dfa.accepts[s] != 0) blocks.Mark(s);
  }
  blocks.Split();
  RefinablePartition cords(static_cast<int32_t>(dfa.edges.size()));
  std::vector<int32_t> classes(dfa.edges.size());
  for (size_t i = 0; i < classes.size(); ++i) {
    classes[i] = dfa.edges[i].byte_class;
  }
  cords.Group(classes, dfa.num_classes);
  const EdgesTo edges_to(dfa);
  int32_t block = 1;
  for (int32_t cord = 0; cord < cords.num_sets(); ++cord) {
    for (int32_t i = cords.first(cord); i < cords.end(cord); ++i) {
      blocks.Mark(dfa.edges[cords.element(i)].from);
    }
    blocks.Split();
    for (; block < blocks.num_sets(); ++block) {
      for (int32_t i = blocks.first(block); i < blocks.end(block); ++i) {
        const int32_t state = blocks.element(i);
        for (int32_t j = edges_to.first[state]; j < edges_to.first[state + 1];
             ++j) {
          cords.Mark(edges_to.edges[j]);
        }
      }
      cords.Split();
    }
  }
  std::vector<int32_t> result(dfa.num_states());
  for (int32_t s = 0; s < dfa.num_states(); ++s) result[s] = blocks.set_of(s);
  return result;
}

}  // namespace espalier
