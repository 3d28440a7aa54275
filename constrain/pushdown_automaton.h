// PushdownAutomaton: a language of byte strings by several finite automata that
// call one another, as the rules of a recursive grammar do (a recursive
// transition network). A call leads to the start of another automaton; where
// that one accepts, the text may continue in the state after the call. A stack
// has the states to return to, at most max_depth() of them; a text that needs
// more is not in the language. A call after which nothing can follow takes no
// place on the stack.
//
//   value ::= "(" value ")" | "x"       0 -"("-> 1  calls 0, then 2
//                                       2 -")"-> 3, which accepts
//                                       0 -"x"-> 3
//
// All states are those of one table; each automaton is deterministic over bytes
// and calls. A call reads at least a byte: where the called automaton also has
// the empty text, the state that calls has the bytes and calls of the state
// after the call.
//
// constrain/pushdown_configurations.h follows texts.
//
// Thread safety: constant after construction; any thread may read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/byte_nfa.h"
#include "constrain/compile_budget.h"
#include "constrain/pushdown_costs.h"

namespace espalier {

class PushdownAutomaton {
 public:
  using State = int32_t;
  static constexpr State kNone = -1;
  static constexpr State kStart = 0;
  static constexpr int kMaxDepth = 64;  // default

  struct Call {
    State callee = 0;  // start of the automaton that is called
    State after = 0;
  };

  // Calls in a ByteAutomaton that is made into this: a call of automaton i is
  // kCallByte and then the digits of i, bytes that no text has. Its texts are a
  // call and a text of the automaton that is called.
  static constexpr uint8_t kCallByte = 0xFF;
  static constexpr uint8_t kFirstDigit = 0xF8;
  static constexpr int kNumDigits = 7;
  // Returns the fewest digits that number `num_automata` automata.
  static int NumDigitsOf(int64_t num_automata);
  // Adds a call of an automaton, by `num_digits` digits.
  // Errors: kInvalidArgument if the budget of `nfa` is spent.
  static absl::Status AddCall(int64_t automaton, int num_digits,
                              ByteNfa::State from, ByteNfa::State to,
                              ByteNfa* nfa);

  // Makes one of `calls`, whose start leads by a call to each automaton. That
  // of number 0 has the texts of the language.
  //   num_digits  of a call
  // Errors: kInvalidArgument if the budget is spent, or if no text has a stack
  // of `max_depth` states or fewer.
  static absl::StatusOr<PushdownAutomaton> Make(const ByteAutomaton& calls,
                                                int num_digits, int max_depth,
                                                CompileBudget* budget);

  // Returns the texts of `before`, each with one of this language behind it.
  // Errors: kInvalidArgument if the budget is spent.
  absl::StatusOr<PushdownAutomaton> After(const ByteAutomaton& before,
                                          CompileBudget* budget) const;

  int num_states() const { return static_cast<int>(accepts_.size()); }
  int num_classes() const { return num_classes_; }
  int max_depth() const { return max_depth_; }
  int64_t table_bytes() const {
    return static_cast<int64_t>(next_.size() * sizeof(State) +
                                calls_.size() * sizeof(Call));
  }
  int64_t num_calls() const { return static_cast<int64_t>(calls_.size()); }

  // As for ByteAutomaton.
  int ClassOf(uint8_t byte) const { return classes_[byte]; }
  State NextByClass(State state, int byte_class) const {
    return next_[static_cast<size_t>(state) * num_classes_ + byte_class];
  }
  std::span<const Call> CallsOf(State state) const {
    return std::span(calls_).subspan(
        first_call_[state], first_call_[state + 1] - first_call_[state]);
  }
  // True if a text of the state's automaton ends here.
  bool accepts(State state) const { return accepts_[state] != 0; }
  // True if a byte may follow without a call before it.
  bool reads_bytes(State state) const { return reads_bytes_[state] != 0; }
  // True if neither a byte nor a call may follow.
  bool ends(State state) const {
    return !reads_bytes(state) && CallsOf(state).empty();
  }
  // The fewest bytes to where a text of the state's automaton may end.
  const PushdownCosts& bytes() const { return bytes_; }

 private:
  PushdownAutomaton() = default;
  class Maker;
  absl::Status CountBytes(CompileBudget* budget);

  std::array<uint8_t, 256> classes_ = {};
  int num_classes_ = 0;
  int max_depth_ = 0;
  std::vector<State> next_;           // [num_states, num_classes]
  std::vector<uint8_t> accepts_;      // [num_states]
  std::vector<uint8_t> reads_bytes_;  // [num_states]
  std::vector<int32_t> first_call_;   // [num_states + 1]
  std::vector<Call> calls_;           // by the state that calls
  PushdownCosts bytes_;
};

// A language with or without recursion.
using GrammarLanguage = std::variant<ByteAutomaton, PushdownAutomaton>;

}  // namespace espalier
