#include "constrain/automaton_builder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/status.h"
#include "constrain/minimize_dfa.h"

namespace espalier {
namespace {

using State = ByteAutomaton::State;
using Edge = DfaEdges::Edge;

// Sorts the edges by the state that they leave, then by class.
void SortEdges(DfaEdges* dfa) {
  std::vector<Edge>& edges = dfa->edges;
  if (!std::ranges::is_sorted(edges, {}, &Edge::from)) {  // a counting sort
    std::vector<int32_t> next(dfa->num_states() + 1, 0);
    for (const Edge& edge : edges) ++next[edge.from + 1];
    for (int s = 0; s < dfa->num_states(); ++s) next[s + 1] += next[s];
    std::vector<Edge> sorted(edges.size());
    for (const Edge& edge : edges) sorted[next[edge.from]++] = edge;
    edges = std::move(sorted);
  }
  const auto is_less = [](const Edge& a, const Edge& b) {
    return a.from != b.from ? a.from < b.from : a.first < b.first;
  };
  if (!std::ranges::is_sorted(edges, is_less)) {
    std::ranges::sort(edges, is_less);
  }
}

// Makes the automaton from edges that are sorted.
class AutomatonBuilder {
 public:
  AutomatonBuilder(DfaEdges dfa, CompileBudget* budget)
      : dfa_(std::move(dfa)), budget_(*budget) {}

  absl::StatusOr<ByteAutomaton> Run() && {
    IndexEdges();
    FindDistances();
    if (distances_[ByteAutomaton::kStart] < 0) {
      return InvalidArgument("no text matches");
    }
    Trim();
    blocks_ = MinimizeDfa(dfa_, first_, distances_, order_);
    RETURN_IF_ERROR(budget_.CheckStates(std::ssize(blocks_.members)));
    MergeClasses();
    RETURN_IF_ERROR(
        budget_.CheckTable(std::ssize(blocks_.members) * num_merged_ *
                           static_cast<int64_t>(sizeof(State))));
    return NumberByDistance();
  }

 private:
  std::span<const Edge> EdgesOf(State state) const {
    return std::span(dfa_.edges)
        .subspan(first_[state], first_[state + 1] - first_[state]);
  }

  void IndexEdges() {
    first_.assign(dfa_.num_states() + 1, 0);
    for (const Edge& edge : dfa_.edges) ++first_[edge.from + 1];
    for (State s = 0; s < dfa_.num_states(); ++s) first_[s + 1] += first_[s];
  }

  // A breadth-first search from the accepting states, against the edges.
  void FindDistances() {
    std::vector<int32_t> first(dfa_.num_states() + 1, 0);
    for (const Edge& edge : dfa_.edges) ++first[edge.to + 1];
    for (State s = 0; s < dfa_.num_states(); ++s) first[s + 1] += first[s];
    std::vector<State> sources(dfa_.edges.size());
    std::vector<int32_t> next(first.begin(), first.end() - 1);
    for (const Edge& edge : dfa_.edges) sources[next[edge.to]++] = edge.from;
    distances_.assign(dfa_.num_states(), -1);
    for (State s = 0; s < dfa_.num_states(); ++s) {
      if (dfa_.accepts[s] == 0) continue;
      distances_[s] = 0;
      order_.push_back(s);
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      const State to = order_[i];
      for (int32_t j = first[to]; j < first[to + 1]; ++j) {
        if (distances_[sources[j]] >= 0) continue;
        distances_[sources[j]] = distances_[to] + 1;
        order_.push_back(sources[j]);
      }
    }
  }

  // Drops states that no text passes.
  void Trim() {
    std::vector<uint8_t> reached(dfa_.num_states(), 0);
    std::vector<State> open = {ByteAutomaton::kStart};
    reached[ByteAutomaton::kStart] = 1;
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      for (const Edge& edge : EdgesOf(state)) {
        if (reached[edge.to] != 0) continue;
        reached[edge.to] = 1;
        open.push_back(edge.to);
      }
    }
    std::erase_if(order_, [&](State state) { return reached[state] == 0; });
    if (std::ssize(order_) == dfa_.num_states()) return;
    std::erase_if(dfa_.edges, [&](const Edge& edge) {
      return reached[edge.from] == 0 || distances_[edge.to] < 0;
    });
    IndexEdges();
  }

  // Numbers the sets of classes with equal transitions by their smallest bytes.
  void MergeClasses() {
    HashKey key = kHashKey;
    while (!MergeClasses(key)) key = HashKey::Random();
  }

  // Takes classes for equal whose sums are, and returns false if they are not.
  bool MergeClasses(const HashKey& key) {
    // By class, first as differences from the class before.
    std::array<uint64_t, 257> sums = {};
    for (size_t b = 0; b < blocks_.members.size(); ++b) {
      for (const Edge& edge : EdgesOf(blocks_.members[b])) {
        const uint64_t hash =
            HashOf((uint64_t{b} << 32) + blocks_.block_of[edge.to], key);
        sums[edge.first] += hash;
        sums[edge.last + 1] -= hash;
      }
    }
    std::partial_sum(sums.begin(), sums.end(), sums.begin());
    num_merged_ = 0;
    std::array<int32_t, 256> firsts = {};  // class of each set
    std::vector<std::pair<int32_t, int32_t>>
        equal;  // each with its set's first
    for (int32_t c = 0; c < dfa_.num_classes; ++c) {
      const auto end = firsts.begin() + num_merged_;
      const auto found = std::find_if(
          firsts.begin(), end, [&](int32_t f) { return sums[f] == sums[c]; });
      merged_[c] = static_cast<int32_t>(found - firsts.begin());
      if (found == end) {
        firsts[num_merged_++] = c;
      } else {
        equal.emplace_back(c, *found);
      }
    }
    return equal.empty() || AreClassesEqual(equal);
  }

  // True if the classes of each pair lead from each state to one state, or
  // none.
  bool AreClassesEqual(
      std::span<const std::pair<int32_t, int32_t>> pairs) const {
    // Most edges have whole sets of classes: then the state's do, too.
    std::array<int32_t, 256> first = {};  // by set, its smallest class
    std::array<int32_t, 256> last = {};
    for (int32_t c = dfa_.num_classes - 1; c >= 0; --c) first[merged_[c]] = c;
    for (int32_t c = 0; c < dfa_.num_classes; ++c) last[merged_[c]] = c;
    // [first class, last class]  1: whole sets, -1: not, 0: not known.
    std::vector<int8_t> is_whole(size_t{256} * 256, 0);
    const auto has_whole_sets = [&](const Edge& edge) {
      int8_t& known = is_whole[edge.first * 256 + edge.last];
      if (known == 0) {
        known = 1;
        for (int c = edge.first; c <= edge.last; ++c) {
          const int32_t set = merged_[c];
          if (first[set] < edge.first || last[set] > edge.last) known = -1;
        }
      }
      return known > 0;
    };
    std::vector<State> row(dfa_.num_classes);
    return std::ranges::all_of(blocks_.members, [&](State state) {
      if (std::ranges::all_of(EdgesOf(state), has_whole_sets)) return true;
      std::ranges::fill(row, ByteAutomaton::kNone);
      for (const Edge& edge : EdgesOf(state)) {
        std::fill(row.begin() + edge.first, row.begin() + edge.last + 1,
                  blocks_.block_of[edge.to]);
      }
      return std::ranges::all_of(pairs, [&](const auto& pair) {
        return row[pair.first] == row[pair.second];
      });
    });
  }

  // Returns the automaton, with states numbered as it says.
  ByteAutomaton NumberByDistance() const {
    const auto num_classes = static_cast<size_t>(num_merged_);
    ByteAutomaton::Tables tables;
    for (size_t byte = 0; byte < dfa_.classes.size(); ++byte) {
      tables.classes[byte] = static_cast<uint8_t>(merged_[dfa_.classes[byte]]);
    }
    tables.num_classes = num_merged_;
    tables.next.reserve(blocks_.members.size() * num_classes);
    tables.accepts.reserve(blocks_.members.size());
    ByteAutomaton::Ends ends;
    std::vector<State> numbers(blocks_.members.size(), ByteAutomaton::kNone);
    std::vector<State> queue = {
        blocks_.members[blocks_.block_of[ByteAutomaton::kStart]]};
    queue.reserve(blocks_.members.size());
    numbers[blocks_.block_of[ByteAutomaton::kStart]] = ByteAutomaton::kStart;
    for (size_t i = 0; i < queue.size(); ++i) {
      const State state = queue[i];
      tables.next.insert(tables.next.end(), num_classes, ByteAutomaton::kNone);
      State* const row = &tables.next[i * num_classes];
      for (const Edge& edge : EdgesOf(state)) {
        State& to = numbers[blocks_.block_of[edge.to]];
        if (to == ByteAutomaton::kNone) {
          to = static_cast<State>(queue.size());
          queue.push_back(blocks_.members[blocks_.block_of[edge.to]]);
        }
        for (int c = edge.first; c <= edge.last; ++c) row[merged_[c]] = to;
      }
      tables.accepts.push_back(dfa_.accepts[state]);
      ends.is_last.push_back(EdgesOf(state).empty() ? 1 : 0);
      ends.min_bytes.push_back(distances_[state]);
    }
    return ByteAutomaton(std::move(tables), std::move(ends));
  }

  DfaEdges dfa_;
  CompileBudget& budget_;
  std::vector<int32_t> first_;      // [num_states + 1], into edges
  std::vector<int32_t> distances_;  // [num_states] bytes to an end, or -1
  std::vector<State> order_;        // states that texts pass, by distance
  DfaBlocks blocks_;
  std::array<int32_t, 256> merged_ = {};  // number of its set by class
  int32_t num_merged_ = 0;
};

}  // namespace

absl::StatusOr<ByteAutomaton> BuildAutomaton(DfaEdges dfa,
                                             CompileBudget* budget) {
  // The passes below read an edge ten to twenty times.
  constexpr int64_t kStepsOfEdge = 12;
  int64_t num_edges = 0;  // an edge for each class
  for (const DfaEdges::Edge& edge : dfa.edges) num_edges += edge.num_classes();
  RETURN_IF_ERROR(budget->Take(kStepsOfEdge * (num_edges + dfa.num_states())));
  int num_classes = 0;  // begun before
  for (const uint8_t byte_class : dfa.classes) {
    CHECK(byte_class <= num_classes) << "classes are not in order";
    num_classes = std::max<int>(num_classes, byte_class + 1);
  }
  CHECK(num_classes == dfa.num_classes) << "a class without bytes";
  SortEdges(&dfa);
  return AutomatonBuilder(std::move(dfa), budget).Run();
}

}  // namespace espalier
