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
// An automaton may have a counter, which is 0 at the call: some bytes add one,
// and some are legal only from a count on and up to another. So the strings of
// at most 100,000 characters are those of any length, with one limit.
//
//   '"' [^"]{0,9} '"'    0 -'"'-> 1    1 -[^"], adds one-> 1
//                                      1 -'"', up to 9-> 2, which accepts
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
#include <limits>
#include <optional>
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

  // Counts in a ByteAutomaton, bytes that no text has: kCountByte follows a
  // byte that adds one; kLimitByte and kNumLimitDigits digits come before a
  // byte that is legal with the counts of that one of `limits`. Where a byte
  // has several, the largest holds; those of an automaton with a least count
  // are one.
  static constexpr uint8_t kCountByte = 0xF5;
  static constexpr uint8_t kLimitByte = 0xF6;
  static constexpr int kNumLimitDigits = 3;
  static constexpr int64_t kMaxLimits = 343;  // numbers of so many digits
  // Adds what comes before a byte with limit number `limit`.
  // Errors: as AddCall.
  static absl::Status AddLimit(int64_t limit, ByteNfa::State from,
                               ByteNfa::State to, ByteNfa* nfa);
  // No limit.
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  struct Counts {
    int64_t least = 0;
    int64_t most = kUnlimited;
    friend bool operator==(const Counts&, const Counts&) = default;
  };

  // Makes one of `calls`, whose start leads by a call to each automaton. That
  // of number 0 has the texts of the language.
  //   num_digits  of a call
  //   limits      of counters, each kUnlimited or at most kMaxCount
  // Errors: kInvalidArgument if the budget is spent, or if no text matches,
  // also where other automata have texts, or none has a stack of `max_depth`
  // states or fewer; kFailedPrecondition if an automaton has a least count, and
  // one of its texts cannot be continued by one count more.
  static absl::StatusOr<PushdownAutomaton> Make(
      const ByteAutomaton& calls, int num_digits, int max_depth,
      CompileBudget* budget, std::vector<Counts> limits = {});
  static constexpr int64_t kMaxCount = int64_t{1} << 53;

  // Returns the texts of `before`, each with one of this language behind it.
  // Errors: kInvalidArgument if the budget is spent.
  absl::StatusOr<PushdownAutomaton> After(const ByteAutomaton& before,
                                          CompileBudget* budget) const;

  int num_states() const { return static_cast<int>(accepts_.size()); }
  int num_classes() const { return num_classes_; }
  int max_depth() const { return max_depth_; }
  int64_t table_bytes() const {
    return static_cast<int64_t>(next_.size() * sizeof(State) +
                                calls_.size() * sizeof(Call) + kinds_.size() +
                                counters_.size() * sizeof(Counter));
  }
  int64_t num_calls() const { return static_cast<int64_t>(calls_.size()); }

  // As for ByteAutomaton.
  int ClassOf(uint8_t byte) const { return classes_[byte]; }
  // With any count.
  State NextByClass(State state, int byte_class) const {
    return next_[static_cast<size_t>(state) * num_classes_ + byte_class];
  }
  // Returns the count after a byte with which a state leads to another, or -1:
  // it is not legal, or no text can be completed after it. Above all limits of
  // an automaton, counts are one.
  int64_t CountAfter(State state, int byte_class, int64_t count) const {
    return counters_.empty() ? 0 : CountAfterCounted(state, byte_class, count);
  }
  bool has_counters() const { return !counters_.empty(); }
  // Returns the smallest count from which up to `reach` bytes are legal as they
  // are from `count`. They have the same needs, or below a least count needs
  // that differ by one number.
  int64_t SimilarCount(State state, int64_t count, int64_t reach) const;
  // Returns an upper bound of the fewest bytes, or tokens of a vocabulary that
  // has one of each byte, to where a text may end that needs a higher count: in
  // proportion to what it lacks, so that a byte leads to one with fewer. 0 if
  // the count suffices.
  int32_t MoreBelowLeast(State state, int64_t count) const;
  // True if a count is below the least one of the state's automaton.
  bool IsBelowLeast(State state, int64_t count) const {
    return has_counters() && IsCounted(state) &&
           count < regions_[counters_[state].region].least;
  }
  // True if some automaton has a least count.
  bool has_least() const;
  // All that CountAfter and MoreBelowLeast know of a state whose automaton has
  // a counter; null of others.
  struct CounterLimits {
    int64_t max_count = 0;
    int64_t limit = 0;
    int64_t least = 0;
    int64_t beyond = 0;  // counts from here on are one
    int64_t region_least = 0;
    int32_t bytes_for_one = 0;
    int32_t more_below = 0;
    // Counts beyond which something changes, ascending; the same array for all
    // states that lead to one another.
    std::span<const int64_t> limits;
  };
  std::optional<CounterLimits> CounterOf(State state) const;
  // True if a byte adds one, or is legal only with some counts.
  bool AddsOne(State state, int byte_class) const {
    return has_counters() && KindOf(state, byte_class) == kAddsOne;
  }
  bool HasLimit(State state, int byte_class) const {
    return has_counters() && KindOf(state, byte_class) == kHasLimit;
  }
  // False if a byte leads from a state with some counts, from which a text can
  // be completed, to a count from which it cannot.
  bool IsSure(State state, int byte_class) const;
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
  // The state's automaton has no counter.
  static constexpr int64_t kUncounted = std::numeric_limits<int64_t>::min();
  // Counts in a state.
  struct Counter {
    // The largest with which a text of the automaton can be completed, perhaps
    // negative.
    int64_t max_count = kUncounted;
    int64_t limit = -1;  // up to which bytes with a limit may follow
    int64_t least = 0;   // from which they may
    int32_t region = 0;  // index in regions_
    // MoreBelowLeast() but for what is in proportion.
    int32_t more_below = 0;
  };
  // Counted states that lead to one another.
  struct Region {
    // Counts beyond which something changes, ascending.
    std::vector<int64_t> limits = {};
    int64_t least = 0;
    int32_t bytes_for_one = 0;  // if there is a least
  };

  PushdownAutomaton() = default;
  class Maker;
  absl::Status CountBytes(CompileBudget* budget);
  int64_t CountAfterCounted(State state, int byte_class, int64_t count) const;
  bool IsCounted(State state) const {
    return counters_[state].max_count != kUncounted;
  }
  uint8_t KindOf(State state, int byte_class) const {
    return kinds_[static_cast<size_t>(state) * num_classes_ + byte_class];
  }
  // Finds the largest counts, and the regions.
  absl::Status FindCounts(CompileBudget* budget);
  // Finds what MoreBelowLeast returns for the states of a region.
  absl::Status FindMoreBelow(std::span<const State> states, Region* region,
                             CompileBudget* budget);

  std::array<uint8_t, 256> classes_ = {};
  int num_classes_ = 0;
  int max_depth_ = 0;
  std::vector<State> next_;           // [num_states, num_classes]
  std::vector<uint8_t> accepts_;      // [num_states]
  std::vector<uint8_t> reads_bytes_;  // [num_states]
  std::vector<int32_t> first_call_;   // [num_states + 1]
  std::vector<Call> calls_;           // by the state that calls
  // [num_states], or none if no automaton has a counter.
  std::vector<Counter> counters_;
  // [num_states, num_classes] of transitions, or none: 0, or one of these.
  static constexpr uint8_t kAddsOne = 1;
  static constexpr uint8_t kHasLimit = 2;
  std::vector<uint8_t> kinds_;
  std::vector<Region> regions_;
  PushdownCosts bytes_;
};

// A language with or without recursion.
using GrammarLanguage = std::variant<ByteAutomaton, PushdownAutomaton>;

}  // namespace espalier
