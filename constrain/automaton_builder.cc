#include "constrain/automaton_builder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/minimize_dfa.h"

namespace espalier {
namespace {

using State = ByteAutomaton::State;

// Returns 1 for each state that one of `sources` leads to, these included.
// `forward`: along the edges, else against them.
std::vector<uint8_t> Reachable(const DfaEdges& dfa, std::vector<State> sources,
                               bool forward) {
  std::vector<int32_t> first(dfa.num_states() + 1, 0);
  const auto key = [&](const DfaEdges::Edge& edge) {
    return forward ? edge.from : edge.to;
  };
  for (const DfaEdges::Edge& edge : dfa.edges) ++first[key(edge) + 1];
  for (int s = 0; s < dfa.num_states(); ++s) first[s + 1] += first[s];
  std::vector<State> others(dfa.edges.size());
  std::vector<int32_t> next(first.begin(), first.end() - 1);
  for (const DfaEdges::Edge& edge : dfa.edges) {
    others[next[key(edge)]++] = forward ? edge.to : edge.from;
  }
  std::vector<uint8_t> reached(dfa.num_states(), 0);
  for (const State state : sources) reached[state] = 1;
  while (!sources.empty()) {
    const State state = sources.back();
    sources.pop_back();
    for (int32_t i = first[state]; i < first[state + 1]; ++i) {
      if (reached[others[i]] != 0) continue;
      reached[others[i]] = 1;
      sources.push_back(others[i]);
    }
  }
  return reached;
}

// Renumbers the states by `numbers`, -1 for those to drop. States with one
// number must be equal.
DfaEdges Renumber(const DfaEdges& dfa, const std::vector<int32_t>& numbers,
                  int num_states) {
  DfaEdges result = {.accepts = std::vector<uint8_t>(num_states, 0),
                     .classes = dfa.classes,
                     .num_classes = dfa.num_classes};
  std::vector<State> first_of(num_states, -1);  // the state that is taken
  for (State s = 0; s < dfa.num_states(); ++s) {
    if (numbers[s] < 0 || first_of[numbers[s]] >= 0) continue;
    first_of[numbers[s]] = s;
    result.accepts[numbers[s]] = dfa.accepts[s];
  }
  for (const DfaEdges::Edge& edge : dfa.edges) {
    if (numbers[edge.from] < 0 || numbers[edge.to] < 0) continue;
    if (first_of[numbers[edge.from]] != edge.from) continue;
    result.edges.push_back(
        {numbers[edge.from], edge.byte_class, numbers[edge.to]});
  }
  return result;
}

// Drops states that no text passes. Afterwards state 0 is the start.
// Errors: kInvalidArgument if there is no text.
absl::Status Trim(DfaEdges* dfa) {
  const std::vector<uint8_t> from_start =
      Reachable(*dfa, {ByteAutomaton::kStart}, /*forward=*/true);
  std::vector<State> ends;
  for (State s = 0; s < dfa->num_states(); ++s) {
    if (dfa->accepts[s] != 0) ends.push_back(s);
  }
  const std::vector<uint8_t> to_end =
      Reachable(*dfa, std::move(ends), /*forward=*/false);
  if (to_end[ByteAutomaton::kStart] == 0) {
    return InvalidArgument("no text matches");
  }
  std::vector<int32_t> numbers(dfa->num_states(), -1);
  int num_states = 0;
  for (State s = 0; s < dfa->num_states(); ++s) {
    if (from_start[s] != 0 && to_end[s] != 0) numbers[s] = num_states++;
  }
  if (num_states < dfa->num_states()) {
    *dfa = Renumber(*dfa, numbers, num_states);
  }
  return absl::OkStatus();
}

// Returns transitions [num_states, num_classes] of numbered states.
std::vector<State> TableOf(const DfaEdges& dfa) {
  std::vector<State> table(
      static_cast<size_t>(dfa.num_states()) * dfa.num_classes,
      ByteAutomaton::kNone);
  for (const DfaEdges::Edge& edge : dfa.edges) {
    table[static_cast<size_t>(edge.from) * dfa.num_classes + edge.byte_class] =
        edge.to;
  }
  return table;
}

// A counting sort, if they are not sorted.
void SortBySource(DfaEdges* dfa) {
  if (std::ranges::is_sorted(dfa->edges, {}, &DfaEdges::Edge::from)) return;
  std::vector<int32_t> next(dfa->num_states() + 1, 0);
  for (const DfaEdges::Edge& edge : dfa->edges) ++next[edge.from + 1];
  for (int s = 0; s < dfa->num_states(); ++s) next[s + 1] += next[s];
  std::vector<DfaEdges::Edge> sorted(dfa->edges.size());
  for (const DfaEdges::Edge& edge : dfa->edges)
    sorted[next[edge.from]++] = edge;
  dfa->edges = std::move(sorted);
}

// Merges classes with equal transitions. Classes are numbered by their
// smallest byte.
void MergeClasses(DfaEdges* dfa) {
  SortBySource(dfa);
  // Transitions by class, then by source.
  std::vector<int32_t> first(dfa->num_classes + 1, 0);
  for (const DfaEdges::Edge& edge : dfa->edges) ++first[edge.byte_class + 1];
  for (int c = 0; c < dfa->num_classes; ++c) first[c + 1] += first[c];
  std::vector<std::pair<State, State>> columns(dfa->edges.size());
  std::vector<int32_t> next(first.begin(), first.end() - 1);
  for (const DfaEdges::Edge& edge : dfa->edges) {
    columns[next[edge.byte_class]++] = {edge.from, edge.to};
  }
  const auto column = [&](int c) {
    return std::span(columns).subspan(first[c], first[c + 1] - first[c]);
  };
  const auto is_less = [&](int a, int b) {
    return std::ranges::lexicographical_compare(column(a), column(b));
  };
  std::map<int, int, decltype(is_less)> numbers(is_less);
  std::vector<int> merged(dfa->num_classes, -1);
  std::vector<uint8_t> is_first(dfa->num_classes, 0);
  for (uint8_t& byte_class : dfa->classes) {
    const int old = byte_class;
    if (merged[old] < 0) {
      const auto [entry, is_new] =
          numbers.try_emplace(old, static_cast<int>(numbers.size()));
      merged[old] = entry->second;
      is_first[old] = is_new;
    }
    byte_class = static_cast<uint8_t>(merged[old]);
  }
  std::erase_if(dfa->edges, [&](const DfaEdges::Edge& edge) {
    return is_first[edge.byte_class] == 0;
  });
  for (DfaEdges::Edge& edge : dfa->edges) {
    edge.byte_class = merged[edge.byte_class];
  }
  dfa->num_classes = static_cast<int>(numbers.size());
}

// Returns the automaton, with states numbered as it says.
// REQUIRES: classes are numbered by their smallest byte.
ByteAutomaton NumberByDistance(const DfaEdges& dfa) {
  const std::vector<State> table = TableOf(dfa);
  const auto num_classes = static_cast<size_t>(dfa.num_classes);
  std::vector<State> numbers(dfa.num_states(), ByteAutomaton::kNone);
  std::vector<State> queue = {ByteAutomaton::kStart};
  numbers[ByteAutomaton::kStart] = 0;
  ByteAutomaton::Tables tables;
  tables.classes = dfa.classes;
  tables.num_classes = dfa.num_classes;
  tables.next.reserve(table.size());
  for (size_t i = 0; i < queue.size(); ++i) {
    const State* const row =
        &table[static_cast<size_t>(queue[i]) * num_classes];
    tables.accepts.push_back(dfa.accepts[queue[i]]);
    for (size_t c = 0; c < num_classes; ++c) {
      const State to = row[c];
      if (to == ByteAutomaton::kNone) {
        tables.next.push_back(ByteAutomaton::kNone);
        continue;
      }
      if (numbers[to] == ByteAutomaton::kNone) {
        numbers[to] = static_cast<State>(queue.size());
        queue.push_back(to);
      }
      tables.next.push_back(numbers[to]);
    }
  }
  return ByteAutomaton(std::move(tables));
}

}  // namespace

absl::StatusOr<ByteAutomaton> BuildAutomaton(DfaEdges dfa,
                                             CompileBudget* budget) {
  // The passes below read an edge ten to twenty times.
  constexpr int64_t kStepsOfEdge = 12;
  RETURN_IF_ERROR(
      budget->Take(kStepsOfEdge * (static_cast<int64_t>(dfa.edges.size()) +
                                   dfa.num_states())));
  const int num_states_before = dfa.num_states();
  MergeClasses(&dfa);  // fewer edges for the passes below
  RETURN_IF_ERROR(Trim(&dfa));
  std::vector<int32_t> blocks = MinimizeDfa(dfa);
  const int num_states = 1 + *std::max_element(blocks.begin(), blocks.end());
  RETURN_IF_ERROR(budget->CheckStates(num_states));
  if (num_states < dfa.num_states()) {
    // The start keeps number 0.
    const int32_t start = blocks[ByteAutomaton::kStart];
    for (int32_t& block : blocks) {
      block = block == start ? 0 : block + (block < start ? 1 : 0);
    }
    dfa = Renumber(dfa, blocks, num_states);
  }
  if (num_states < num_states_before) MergeClasses(&dfa);
  RETURN_IF_ERROR(budget->CheckTable(int64_t{num_states} * dfa.num_classes *
                                     static_cast<int64_t>(sizeof(State))));
  return NumberByDistance(dfa);
}

}  // namespace espalier
