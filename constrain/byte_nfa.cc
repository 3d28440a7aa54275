#include "constrain/byte_nfa.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/status.h"
#include "constrain/automaton_builder.h"
#include "constrain/number_table.h"

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
        set_after_(nfa_.num_states_, -1),
        set_of_(nfa_.num_states_, -1) {}

  absl::StatusOr<DfaEdges> Run() {
    FindClasses();
    SortEdges();
    targets_.resize(dfa_.num_classes);
    set_first_.push_back(0);
    states_ = {start_};
    RETURN_IF_ERROR(AddSet(/*at_start=*/true).status());
    for (int32_t i = 0; i < num_sets(); ++i) RETURN_IF_ERROR(AddEdgesOf(i));
    return std::move(dfa_);
  }

 private:
  using Set = std::vector<State>;  // ascending
  // Edges that take a byte, by classes.
  struct ClassEdge {
    State from;
    uint8_t first;
    uint8_t last;
    State to;
  };

  // Two bytes are of one class if no range of an edge begins between them.
  void FindClasses() {
    std::array<uint8_t, 257> begins = {};
    for (const auto& edge : nfa_.byte_edges_) {
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

  // Orders the edges by the state that they leave, then by their bytes.
  void SortEdges() {
    byte_edges_ = Sorted<ClassEdge>(
        std::move(nfa_.byte_edges_), &byte_first_, [&](const auto& edge) {
          return ClassEdge{edge.from, dfa_.classes[edge.first],
                           dfa_.classes[edge.last], edge.to};
        });
    for (State s = 0; s < nfa_.num_states_; ++s) {
      const auto edges =
          std::span(byte_edges_)
              .subspan(byte_first_[s], byte_first_[s + 1] - byte_first_[s]);
      if (!std::ranges::is_sorted(edges, {}, &ClassEdge::first)) {
        std::ranges::sort(edges, {}, &ClassEdge::first);
      }
    }
    empty_edges_ = Sorted<ByteNfa::EmptyEdge>(std::move(nfa_.empty_edges_),
                                              &empty_first_, std::identity());
  }

  // A counting sort. `first` becomes the index of each state's first edge.
  template <typename Result, typename Edge, typename Convert>
  std::vector<Result> Sorted(std::vector<Edge> edges,
                             std::vector<int32_t>* first,
                             const Convert& convert) const {
    for (const Edge& edge : edges) ++(*first)[edge.from + 1];
    for (State s = 0; s < nfa_.num_states_; ++s) (*first)[s + 1] += (*first)[s];
    std::vector<int32_t> next(first->begin(), first->end() - 1);
    std::vector<Result> sorted(edges.size());
    for (const Edge& edge : edges) sorted[next[edge.from]++] = convert(edge);
    return sorted;
  }

  std::span<const ClassEdge> EdgesOf(State state) const {
    return std::span(byte_edges_)
        .subspan(byte_first_[state],
                 byte_first_[state + 1] - byte_first_[state]);
  }

  int32_t num_sets() const {
    return static_cast<int32_t>(set_first_.size()) - 1;
  }
  std::span<const State> SetOf(int32_t number) const {
    return std::span(sets_).subspan(
        set_first_[number], set_first_[number + 1] - set_first_[number]);
  }

  // Appends to states_ the states that empty edges lead to from these, and says
  // whether the end is among them. Edges at the end of a text count for that
  // alone: after them no byte may follow.
  absl::StatusOr<bool> Close(bool at_start) {
    ++stamp_;
    for (const State state : states_) seen_[state] = 2 * stamp_;
    after_end_.clear();
    RETURN_IF_ERROR(Follow(at_start));
    bool at_end = std::ranges::find(states_, end_) != states_.end();
    // A second search, in which edges at the end are like others.
    for (size_t i = 0; i < after_end_.size() && !at_end; ++i) {
      at_end = after_end_[i] == end_;
      for (int32_t e = empty_first_[after_end_[i]];
           e < empty_first_[after_end_[i] + 1]; ++e) {
        const auto& edge = empty_edges_[e];
        RETURN_IF_ERROR(nfa_.budget_->Take(1));
        if (edge.condition == NfaCondition::kAtStart && !at_start) continue;
        if (seen_[edge.to] >= 2 * stamp_) continue;
        seen_[edge.to] = 2 * stamp_ + 1;
        after_end_.push_back(edge.to);
      }
    }
    return at_end;
  }

  // Follows empty edges from states_; those at the end lead to after_end_.
  absl::Status Follow(bool at_start) {
    for (size_t i = 0; i < states_.size(); ++i) {
      const State from = states_[i];
      const int32_t end = empty_first_[from + 1];
      RETURN_IF_ERROR(nfa_.budget_->Take(1 + end - empty_first_[from]));
      for (int32_t e = empty_first_[from]; e < end; ++e) {
        const auto& edge = empty_edges_[e];
        if (edge.condition == NfaCondition::kAtStart && !at_start) continue;
        if (edge.condition == NfaCondition::kAtEnd) {
          after_end_.push_back(edge.to);
          continue;
        }
        if (seen_[edge.to] == 2 * stamp_) continue;
        seen_[edge.to] = 2 * stamp_;
        states_.push_back(edge.to);
      }
    }
    return absl::OkStatus();
  }

  // Returns the number of the set that states_ lead to; a new one if there is
  // none yet. Changes states_.
  absl::StatusOr<int32_t> AddSet(bool at_start) {
    ASSIGN_OR_RETURN(const bool accepts, Close(at_start));
    std::erase_if(states_, [&](State state) {
      return byte_first_[state] == byte_first_[state + 1];
    });
    std::sort(states_.begin(), states_.end());
    // A set is told from an equal one that accepts by a number beyond states.
    if (accepts) states_.push_back(nfa_.num_states_);
    RETURN_IF_ERROR(nfa_.budget_->Take(static_cast<int64_t>(states_.size())));
    if (states_.size() == 1 && !accepts) {
      int32_t& number = set_of_[states_[0]];
      if (number < 0) RETURN_IF_ERROR(AppendSet(accepts, &number));
      return number;
    }
    const uint64_t hash =
        HashOf(std::string_view(reinterpret_cast<const char*>(states_.data()),
                                states_.size() * sizeof(State)));
    int32_t number = numbers_.FindOrAdd(hash, num_sets(), [&](int32_t other) {
      return std::ranges::equal(SetOf(other), states_);
    });
    if (number == num_sets()) RETURN_IF_ERROR(AppendSet(accepts, &number));
    return number;
  }

  // As AddSet, of one state that has been read.
  absl::StatusOr<int32_t> SetAfter(State state) {
    int32_t& number = set_after_[state];
    if (number >= 0) return number;
    states_.assign(1, state);
    if (IsSet(state)) {
      RETURN_IF_ERROR(nfa_.budget_->Take(2));
      if (set_of_[state] < 0) {
        RETURN_IF_ERROR(AppendSet(/*accepts=*/false, &set_of_[state]));
      }
      return number = set_of_[state];
    }
    ASSIGN_OR_RETURN(number, AddSet(/*at_start=*/false));
    return number;
  }

  // True if no empty edge changes the set of a state alone.
  bool IsSet(State state) const {
    return state != end_ && byte_first_[state] < byte_first_[state + 1] &&
           empty_first_[state] == empty_first_[state + 1];
  }

  // Makes states_ a set.
  absl::Status AppendSet(bool accepts, int32_t* number) {
    *number = num_sets();
    sets_.insert(sets_.end(), states_.begin(), states_.end());
    set_first_.push_back(static_cast<int64_t>(sets_.size()));
    dfa_.accepts.push_back(accepts ? 1 : 0);
    // Minimization may merge states, so more of them are allowed here.
    RETURN_IF_ERROR(nfa_.budget_->CheckStates(*number / 4));
    // Memory of a set counts more than a step.
    return nfa_.budget_->Take(8 + 3 * static_cast<int64_t>(states_.size()));
  }

  absl::Status AddEdgesOf(int32_t number) {
    const std::span<const State> set = SetOf(number);
    if (set.empty() || set[0] == nfa_.num_states_) return absl::OkStatus();
    const bool is_single = set.size() == 1 || set[1] == nfa_.num_states_;
    if (is_single && AreApart(EdgesOf(set[0]))) {
      return AddEdgesOfState(number, set[0]);
    }
    for (const State state : set) {
      if (state == nfa_.num_states_) continue;
      for (const ClassEdge& edge : EdgesOf(state)) {
        RETURN_IF_ERROR(nfa_.budget_->Take(1 + edge.last - edge.first));
        for (int c = edge.first; c <= edge.last; ++c) {
          targets_[c].push_back(edge.to);
        }
      }
    }
    // Neighbouring classes often lead to the same states.
    int previous = -1;
    int32_t previous_number = -1;
    for (int c = 0; c < dfa_.num_classes; ++c) {
      if (targets_[c].empty()) continue;
      if (previous < 0 || targets_[c] != targets_[previous]) {
        states_ = targets_[c];
        std::sort(states_.begin(), states_.end());
        states_.erase(std::unique(states_.begin(), states_.end()),
                      states_.end());
        ASSIGN_OR_RETURN(previous_number, AddSet(/*at_start=*/false));
        previous = c;
      }
      RETURN_IF_ERROR(nfa_.budget_->Take(4));
      dfa_.Add(number, c, c, previous_number);
    }
    for (Set& targets : targets_) targets.clear();
    return absl::OkStatus();
  }

  // True if no edge has a class of another one.
  static bool AreApart(std::span<const ClassEdge> edges) {
    return std::ranges::adjacent_find(
               edges, [](const ClassEdge& a, const ClassEdge& b) {
                 return b.first <= a.last;
               }) == edges.end();
  }

  // As AddEdgesOf, without sets: most states are alone in theirs.
  absl::Status AddEdgesOfState(int32_t number, State state) {
    int64_t num_steps = 0;
    for (const ClassEdge& edge : EdgesOf(state)) {
      ASSIGN_OR_RETURN(const int32_t to, SetAfter(edge.to));
      dfa_.Add(number, edge.first, edge.last, to);
      num_steps += 1 + 5 * (1 + edge.last - edge.first);
    }
    return nfa_.budget_->Take(num_steps);
  }

  ByteNfa nfa_;
  const State start_;
  const State end_;
  // [num_states]  2 * stamp_: in the set; 2 * stamp_ + 1: after its end.
  std::vector<int64_t> seen_;
  int64_t stamp_ = 0;
  std::vector<int32_t> byte_first_;   // [num_states + 1], into byte_edges_
  std::vector<int32_t> empty_first_;  // [num_states + 1], into empty_edges_
  std::vector<ClassEdge> byte_edges_;
  std::vector<ByteNfa::EmptyEdge> empty_edges_;
  std::vector<State> sets_;         // one after the other
  std::vector<int64_t> set_first_;  // [num_sets + 1], into sets_
  // [num_states]  The set that a state alone leads to, or -1: not known.
  std::vector<int32_t> set_after_;
  // [num_states]  The set of a state alone, or -1.
  std::vector<int32_t> set_of_;
  NumberTable numbers_;       // other sets
  Set states_;                // work of AddSet
  Set after_end_;             // work of Close
  std::vector<Set> targets_;  // [num_classes]  work of AddEdgesOf, else empty
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
