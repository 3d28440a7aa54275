#include "constrain/byte_nfa.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/status.h"
#include "constrain/automaton_builder.h"

namespace espalier {

// Makes sets of states of the NFA the states of a deterministic automaton, from
// the start on. A set has only states with edges that take a byte, and says
// whether empty edges lead to the end.
class SubsetConstruction {
 public:
  using State = ByteNfa::State;

  SubsetConstruction(ByteNfa nfa, State start, State end)
      : nfa_(std::move(nfa)),
        start_(start),
        end_(end),
        seen_(nfa_.num_states_, 0),
        byte_first_(nfa_.num_states_ + 1, 0),
        empty_first_(nfa_.num_states_ + 1, 0),
        set_of_(nfa_.num_states_, -1) {}

  absl::StatusOr<DfaEdges> Run() {
    SortEdges();
    FindClasses();
    targets_.resize(dfa_.num_classes);
    target_of_class_.resize(dfa_.num_classes);
    RETURN_IF_ERROR(AddSet({start_}, /*at_start=*/true).status());
    for (size_t i = 0; i < sets_.size(); ++i) {
      RETURN_IF_ERROR(AddEdgesOf(static_cast<int32_t>(i)));
    }
    return std::move(dfa_);
  }

 private:
  using Set = std::vector<State>;  // ascending
  struct SetHash {
    size_t operator()(const Set* set) const {
      return HashOf(std::string_view(reinterpret_cast<const char*>(set->data()),
                                     set->size() * sizeof(State)));
    }
  };
  struct SameSet {
    bool operator()(const Set* a, const Set* b) const { return *a == *b; }
  };

  // Orders the edges by the state that they leave.
  void SortEdges() {
    byte_edges_ = Sorted(std::move(nfa_.byte_edges_), &byte_first_);
    empty_edges_ = Sorted(std::move(nfa_.empty_edges_), &empty_first_);
  }

  // A counting sort. `first` becomes the index of each state's first edge.
  template <typename Edge>
  std::vector<Edge> Sorted(std::vector<Edge> edges,
                           std::vector<int32_t>* first) const {
    for (const Edge& edge : edges) ++(*first)[edge.from + 1];
    for (State s = 0; s < nfa_.num_states_; ++s) (*first)[s + 1] += (*first)[s];
    std::vector<int32_t> next(first->begin(), first->end() - 1);
    std::vector<Edge> sorted(edges.size());
    for (const Edge& edge : edges) sorted[next[edge.from]++] = edge;
    return sorted;
  }

  // Two bytes are of one class if no range of an edge begins between them.
  void FindClasses() {
    std::array<uint8_t, 257> begins = {};
    for (const auto& edge : byte_edges_) {
      begins[edge.first] = 1;
      begins[edge.last + 1] = 1;
    }
    int byte_class = 0;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte > 0 && begins[byte] != 0) ++byte_class;
      dfa_.classes[byte] = static_cast<uint8_t>(byte_class);
    }
    dfa_.num_classes = byte_class + 1;
  }

  // Appends the states that empty edges lead to from `states`, these included,
  // and says whether the end is among them. Edges at the end of a text count
  // for that alone: after them no byte may follow.
  absl::StatusOr<bool> Close(bool at_start, Set* states) {
    bool at_end = false;
    ++stamp_;
    for (const State state : *states) seen_[state] = 2 * stamp_;
    Set after_end;
    RETURN_IF_ERROR(Follow(at_start, states, &after_end));
    for (const State state : *states) at_end = at_end || state == end_;
    // A second search, in which edges at the end are like others.
    for (size_t i = 0; i < after_end.size() && !at_end; ++i) {
      at_end = after_end[i] == end_;
      for (int32_t e = empty_first_[after_end[i]];
           e < empty_first_[after_end[i] + 1]; ++e) {
        const auto& edge = empty_edges_[e];
        RETURN_IF_ERROR(nfa_.budget_->Take(1));
        if (edge.condition == NfaCondition::kAtStart && !at_start) continue;
        if (seen_[edge.to] >= 2 * stamp_) continue;
        seen_[edge.to] = 2 * stamp_ + 1;
        after_end.push_back(edge.to);
      }
    }
    return at_end;
  }

  // Follows empty edges from `states`; those at the end lead to `after_end`.
  absl::Status Follow(bool at_start, Set* states, Set* after_end) {
    for (size_t i = 0; i < states->size(); ++i) {
      const State from = (*states)[i];
      const int32_t end = empty_first_[from + 1];
      RETURN_IF_ERROR(nfa_.budget_->Take(1 + end - empty_first_[from]));
      for (int32_t e = empty_first_[from]; e < end; ++e) {
        const auto& edge = empty_edges_[e];
        if (edge.condition == NfaCondition::kAtStart && !at_start) continue;
        if (edge.condition == NfaCondition::kAtEnd) {
          after_end->push_back(edge.to);
          continue;
        }
        if (seen_[edge.to] == 2 * stamp_) continue;
        seen_[edge.to] = 2 * stamp_;
        states->push_back(edge.to);
      }
    }
    return absl::OkStatus();
  }

  // Returns the number of the set that `states` lead to; a new one if there is
  // none yet.
  absl::StatusOr<int32_t> AddSet(Set states, bool at_start) {
    ASSIGN_OR_RETURN(const bool accepts, Close(at_start, &states));
    std::erase_if(states, [&](State state) {
      return byte_first_[state] == byte_first_[state + 1];
    });
    std::sort(states.begin(), states.end());
    // A set is told from an equal one that accepts by a number beyond states.
    if (accepts) states.push_back(nfa_.num_states_);
    RETURN_IF_ERROR(nfa_.budget_->Take(static_cast<int64_t>(states.size())));
    const auto found = numbers_.find(&states);
    if (found != numbers_.end()) return found->second;
    const int32_t number = static_cast<int32_t>(sets_.size());
    sets_.push_back(std::make_unique<Set>(std::move(states)));
    numbers_.emplace(sets_.back().get(), number);
    dfa_.accepts.push_back(accepts ? 1 : 0);
    // Minimization may merge states, so more of them are allowed here.
    RETURN_IF_ERROR(nfa_.budget_->CheckStates(number / 4));
    // Memory of a set counts more than a step.
    RETURN_IF_ERROR(
        nfa_.budget_->Take(8 + 3 * static_cast<int64_t>(sets_.back()->size())));
    return number;
  }

  absl::Status AddEdgesOf(int32_t number) {
    const Set& set = *sets_[number];
    if (set.empty() || set[0] == nfa_.num_states_) return absl::OkStatus();
    const bool is_single = set.size() == 1 || set[1] == nfa_.num_states_;
    if (is_single && HasOneTargetEach(set[0])) {
      return AddEdgesOfState(number, set[0]);
    }
    for (const State state : set) {
      if (state == nfa_.num_states_) continue;
      for (int32_t e = byte_first_[state]; e < byte_first_[state + 1]; ++e) {
        const auto& edge = byte_edges_[e];
        const int first = dfa_.classes[edge.first];
        const int last = dfa_.classes[edge.last];
        RETURN_IF_ERROR(nfa_.budget_->Take(1 + last - first));
        for (int c = first; c <= last; ++c) targets_[c].push_back(edge.to);
      }
    }
    // Neighbouring classes often lead to the same states.
    int previous = -1;
    int32_t previous_number = -1;
    for (int c = 0; c < dfa_.num_classes; ++c) {
      if (targets_[c].empty()) continue;
      if (previous < 0 || targets_[c] != targets_[previous]) {
        Set states = targets_[c];
        std::sort(states.begin(), states.end());
        states.erase(std::unique(states.begin(), states.end()), states.end());
        ASSIGN_OR_RETURN(previous_number,
                         AddSet(std::move(states), /*at_start=*/false));
        previous = c;
      }
      RETURN_IF_ERROR(nfa_.budget_->Take(4));
      dfa_.edges.push_back({number, c, previous_number});
    }
    for (Set& targets : targets_) targets.clear();
    return absl::OkStatus();
  }

  // True if each byte leads from a state to one state at most. Sets
  // target_of_class_.
  bool HasOneTargetEach(State state) {
    std::ranges::fill(target_of_class_, -1);
    for (int32_t e = byte_first_[state]; e < byte_first_[state + 1]; ++e) {
      const auto& edge = byte_edges_[e];
      const int last = dfa_.classes[edge.last];
      for (int c = dfa_.classes[edge.first]; c <= last; ++c) {
        if (target_of_class_[c] >= 0 && target_of_class_[c] != edge.to) {
          return false;
        }
        target_of_class_[c] = edge.to;
      }
    }
    return true;
  }

  // As AddEdgesOf, without sets: most states are alone in theirs.
  absl::Status AddEdgesOfState(int32_t number, State state) {
    RETURN_IF_ERROR(
        nfa_.budget_->Take(byte_first_[state + 1] - byte_first_[state]));
    for (int c = 0; c < dfa_.num_classes; ++c) {
      const State to = target_of_class_[c];
      if (to < 0) continue;
      if (set_of_[to] < 0) {
        ASSIGN_OR_RETURN(set_of_[to], AddSet({to}, /*at_start=*/false));
      }
      RETURN_IF_ERROR(nfa_.budget_->Take(5));
      dfa_.edges.push_back({number, c, set_of_[to]});
    }
    return absl::OkStatus();
  }

  ByteNfa nfa_;
  const State start_;
  const State end_;
  std::vector<ByteNfa::ByteEdge> byte_edges_;
  std::vector<ByteNfa::EmptyEdge> empty_edges_;
  // [num_states]  2 * stamp_: in the set; 2 * stamp_ + 1: after its end.
  std::vector<int64_t> seen_;
  int64_t stamp_ = 0;
  std::vector<int32_t> byte_first_;   // [num_states + 1], into byte_edges_
  std::vector<int32_t> empty_first_;  // [num_states + 1], into empty_edges_
  std::vector<std::unique_ptr<Set>> sets_;
  std::unordered_map<const Set*, int32_t, SetHash, SameSet> numbers_;
  // [num_states]  The set that a state alone leads to, or -1: not known.
  std::vector<int32_t> set_of_;
  // [num_classes]  Work of AddEdgesOf; the former is empty in between.
  std::vector<Set> targets_;
  std::vector<State> target_of_class_;
  DfaEdges dfa_;
};

absl::StatusOr<ByteNfa::State> ByteNfa::AddState() {
  RETURN_IF_ERROR(budget_->Take(kStepsForMemory));
  return num_states_++;
}

absl::StatusOr<ByteAutomaton> ByteNfa::Build(State start, State end) && {
  CompileBudget* const budget = budget_;
  ASSIGN_OR_RETURN(DfaEdges dfa,
                   SubsetConstruction(std::move(*this), start, end).Run());
  return BuildAutomaton(std::move(dfa), budget);
}

}  // namespace espalier
