#include "constrain/utf8_sets.h"

#include <cstdint>
#include <utility>

#include "base/status.h"

namespace espalier {

absl::StatusOr<ByteNfa::State> Utf8Sets::Add(const CodePointSet& set,
                                             ByteNfa::State from,
                                             ByteNfa* nfa) {
  constexpr char32_t kLastAscii = 0x7F;
  if (set.empty() || set.ranges().back().last <= kLastAscii) {
    ASSIGN_OR_RETURN(const ByteNfa::State to, nfa->AddState());
    RETURN_IF_ERROR(set.AddTo(nfa, from, to));
    return to;
  }
  RETURN_IF_ERROR(budget_.Take(1 + static_cast<int64_t>(set.ranges().size())));
  auto found = utf8_of_sets_.find(set.ranges());
  if (found == utf8_of_sets_.end()) {
    ASSIGN_OR_RETURN(AutomatonRanges utf8, Utf8Of(set));
    found = utf8_of_sets_.emplace(set.ranges(), std::move(utf8)).first;
  }
  const AutomatonRanges& utf8 = found->second;
  ASSIGN_OR_RETURN(const ByteNfa::State to, nfa->AddState());
  std::vector<ByteNfa::State> states(utf8.num_states);
  for (int s = 0; s < utf8.num_states; ++s) {
    states[s] = s == ByteAutomaton::kStart ? from : to;
    if (s == ByteAutomaton::kStart || s == utf8.accepts.front()) continue;
    ASSIGN_OR_RETURN(states[s], nfa->AddState());
  }
  for (const AutomatonRanges::Edge& edge : utf8.edges) {
    RETURN_IF_ERROR(nfa->AddBytes(states[edge.from], edge.first, edge.last,
                                  states[edge.to]));
  }
  return to;
}

absl::StatusOr<AutomatonRanges> Utf8Sets::Utf8Of(const CodePointSet& set) {
  ByteNfa nfa(&budget_);
  ASSIGN_OR_RETURN(const ByteNfa::State start, nfa.AddState());
  ASSIGN_OR_RETURN(const ByteNfa::State end, nfa.AddState());
  RETURN_IF_ERROR(set.AddTo(&nfa, start, end));
  ASSIGN_OR_RETURN(const ByteAutomaton automaton,
                   std::move(nfa).Build(start, end));
  RETURN_IF_ERROR(budget_.Take(256 * int64_t{automaton.num_states()}));
  return AutomatonRanges(automaton);
}

}  // namespace espalier
