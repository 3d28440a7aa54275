// ByteAutomaton: a language of byte strings as a deterministic finite automaton
// (DFA). A state is a number, so a copy of it forks the position in a text. A
// state from which no text of the language can be completed does not exist: a
// byte may follow a beginning of a text if and only if Next returns a state.
//
// The automaton is minimal, and its states are numbered in the order in which a
// breadth-first search from the start meets them, smaller bytes first. Equal
// languages therefore have equal automata.
//
//   ASSIGN_OR_RETURN(const ByteAutomaton automaton, CompileRegex("-?[0-9]+"));
//   automaton.Match("-1").in_language;   // true
//   automaton.Match("1a").num_matched;   // 1: no text begins with "1a"
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace espalier {

class ByteAutomaton {
 public:
  using State = int32_t;
  static constexpr State kNone = -1;
  static constexpr State kStart = 0;

  // Transitions, complete for a minimal automaton with the above numbering.
  struct Tables {
    // Bytes of one class have the same transitions everywhere.
    std::array<uint8_t, 256> classes = {};
    int num_classes = 1;
    std::vector<State> next;       // [num_states, num_classes]
    std::vector<uint8_t> accepts;  // [num_states]  0 or 1
  };
  // Follows from the transitions.
  struct Ends {
    std::vector<uint8_t> is_last;    // [num_states]  1: nothing may follow
    std::vector<int32_t> min_bytes;  // [num_states]  fewest to an end
  };
  explicit ByteAutomaton(Tables tables);
  // REQUIRES: `ends` are those of `tables`.
  ByteAutomaton(Tables tables, Ends ends);

  int num_states() const { return static_cast<int>(tables_.accepts.size()); }
  int num_classes() const { return tables_.num_classes; }
  const Tables& tables() const { return tables_; }
  // Bytes of the transition table.
  int64_t table_bytes() const {
    return static_cast<int64_t>(tables_.next.size()) * sizeof(State);
  }

  // Returns the state after `byte`; kNone if no text of the language has it
  // there. REQUIRES: `state` is a state.
  State Next(State state, uint8_t byte) const {
    return tables_.next[static_cast<size_t>(state) * tables_.num_classes +
                        tables_.classes[byte]];
  }
  // Returns the number of a byte's class, in [0, num_classes).
  int ClassOf(uint8_t byte) const { return tables_.classes[byte]; }
  // Returns Next for the bytes of a class.
  State NextByClass(State state, int byte_class) const {
    return tables_
        .next[static_cast<size_t>(state) * tables_.num_classes + byte_class];
  }
  // Returns the state after `bytes`; kNone as soon as one of them is illegal.
  State Next(State state, std::string_view bytes) const;

  // True if a text of the language ends here.
  bool accepts(State state) const { return tables_.accepts[state] != 0; }
  // True if nothing may follow: only the end of the text.
  bool ends(State state) const { return ends_.is_last[state] != 0; }
  // Returns the fewest bytes from the state to the end of a text.
  int min_bytes(State state) const { return ends_.min_bytes[state]; }

  struct MatchResult {
    bool in_language = false;
    // Length of the longest beginning that begins a text of the language.
    int64_t num_matched = 0;
    // State after these bytes.
    State state = kStart;
  };
  MatchResult Match(std::string_view text) const;

  // Returns the bytes that may follow, ascending.
  std::vector<uint8_t> BytesAfter(State state) const;

  friend bool operator==(const ByteAutomaton& a, const ByteAutomaton& b) {
    return a.tables_.classes == b.tables_.classes &&
           a.tables_.next == b.tables_.next &&
           a.tables_.accepts == b.tables_.accepts;
  }

 private:
  void CheckTables() const;
  void CountBytesToTheEnd();

  Tables tables_;
  Ends ends_;
};

}  // namespace espalier
