#include "constrain/byte_automaton.h"

#include <utility>

#include "base/check.h"

namespace espalier {

ByteAutomaton::ByteAutomaton(Tables tables) : tables_(std::move(tables)) {
  CheckTables();
  CountBytesToTheEnd();
}

ByteAutomaton::ByteAutomaton(Tables tables, Ends ends)
    : tables_(std::move(tables)), ends_(std::move(ends)) {
  CheckTables();
}

void ByteAutomaton::CheckTables() const {
  CHECK(num_states() > 0) << "an automaton must have a start";
  CHECK(tables_.next.size() ==
        static_cast<size_t>(num_states()) * static_cast<size_t>(num_classes()))
      << "transitions of " << num_states() << " states";
}

// A breadth-first search from the accepting states, against the transitions.
void ByteAutomaton::CountBytesToTheEnd() {
  const size_t n = tables_.accepts.size();
  const size_t num_classes = tables_.num_classes;
  ends_.is_last.assign(n, 1);
  std::vector<int32_t> first(n + 1, 0);  // transitions to each state begin here
  for (size_t s = 0; s < n; ++s) {
    for (size_t c = 0; c < num_classes; ++c) {
      const State to = tables_.next[s * num_classes + c];
      if (to == kNone) continue;
      ends_.is_last[s] = 0;
      ++first[to + 1];
    }
  }
  for (size_t s = 0; s < n; ++s) first[s + 1] += first[s];
  std::vector<State> sources(first[n]);
  std::vector<int32_t> end(first.begin(), first.end() - 1);
  for (size_t s = 0; s < n; ++s) {
    for (size_t c = 0; c < num_classes; ++c) {
      const State to = tables_.next[s * num_classes + c];
      if (to != kNone) sources[end[to]++] = static_cast<State>(s);
    }
  }
  ends_.min_bytes.assign(n, -1);
  std::vector<State> queue;
  for (size_t s = 0; s < n; ++s) {
    if (tables_.accepts[s] == 0) continue;
    ends_.min_bytes[s] = 0;
    queue.push_back(static_cast<State>(s));
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const State state = queue[i];
    for (int32_t j = first[state]; j < first[state + 1]; ++j) {
      int32_t& bytes = ends_.min_bytes[sources[j]];
      if (bytes >= 0) continue;
      bytes = ends_.min_bytes[state] + 1;
      queue.push_back(sources[j]);
    }
  }
  CHECK(queue.size() == n) << "a state that leads to no text";
}

ByteAutomaton::State ByteAutomaton::Next(State state,
                                         std::string_view bytes) const {
  for (const char byte : bytes) {
    state = Next(state, static_cast<uint8_t>(byte));
    if (state == kNone) return kNone;
  }
  return state;
}

ByteAutomaton::MatchResult ByteAutomaton::Match(std::string_view text) const {
  MatchResult result;
  for (const char byte : text) {
    const State next = Next(result.state, static_cast<uint8_t>(byte));
    if (next == kNone) return result;
    result.state = next;
    ++result.num_matched;
  }
  result.in_language = accepts(result.state);
  return result;
}

std::vector<uint8_t> ByteAutomaton::BytesAfter(State state) const {
  std::vector<uint8_t> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    if (Next(state, static_cast<uint8_t>(byte)) != kNone) {
      bytes.push_back(static_cast<uint8_t>(byte));
    }
  }
  return bytes;
}

}  // namespace espalier
