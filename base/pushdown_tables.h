// PushdownTables: the language of a deterministic PushdownAutomaton
// (constrain/pushdown_automaton.h) as arrays, and its positions with their
// stacks: one definition for the host and for devices. Where a byte may be read
// after one sequence of calls alone, and not also after a return, a position is
// one state, its count and one stack.
//
// A *node* is a state with the room that its stack has for calls, its level:
// level * num_states + state. Levels from num_levels - 1 on are one.
//
// base/pushdown_walk.h follows texts.
//
// Values: pointers to arrays that others own, in host memory or in a device's.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace espalier {

// A return that a stack has.
struct alignas(16) PushdownFrame {
  int32_t state = 0;  // after the call
  // From this and the frames below it: the fewest tokens to the end of the
  // text; and those, at least one, if the text continues by returning here;
  // INT32_MAX if there are none.
  int32_t cost = 0;
  int32_t more = INT32_MAX;
  int32_t accepts = 1;  // 1: the text may end by all returns
};

// A position in a text.
struct alignas(16) PushdownPlace {
  static constexpr int kMaxDepth = 64;

  int32_t state = -1;  // as of ConstraintTables; with a stack of the automaton
  int32_t count = 0;   // its counter
  int32_t height = 0;
  int32_t unused = 0;
  PushdownFrame frames[kMaxDepth] = {};
};

// The positions of a constraint, which are numbers on the host.
class PushdownPlaces {
 public:
  virtual ~PushdownPlaces() = default;
  // As of Constraint.
  virtual int32_t PlaceAfter(int32_t state, TokenId token) const = 0;
  virtual bool EndsAt(int32_t state, int32_t room) const = 0;
  // As IsLegalToken.
  virtual bool IsLegal(int32_t state, int32_t room, TokenId token) const = 0;
  // Sets the place of a state but for the frames from its height on.
  virtual void Find(int32_t state, PushdownPlace* place) const = 0;
};

struct PushdownTables {
  // Values of `next` that are no node.
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kReturn = -2;     // then read the byte there
  static constexpr int32_t kFirstMove = -3;  // moves[i] is kFirstMove - i

  // A byte after calls, or with a counter.
  struct Move {
    int32_t next = 0;    // state
    int32_t reader = 0;  // the state that reads the byte
    int32_t first_call = 0;
    int16_t num_calls = 0;
    int16_t kind = 0;  // kAddsOne or kHasLimit
  };
  static constexpr int16_t kAddsOne = 1;
  static constexpr int16_t kHasLimit = 2;
  // The counter of a state's automaton (PushdownAutomaton::CounterOf).
  struct Counter {
    int32_t max_count = INT32_MIN;  // no counter
    int32_t limit = 0;
    int32_t least = 0;
    int32_t beyond = 0;        // counts from here on are one
    int32_t region_least = 0;  // below, a text needs more
    int32_t bytes_for_one = 0;
    int32_t more_below = 0;
    // Counts beyond which something changes: limits[first_limit, first_limit +
    // num_limits), ascending.
    int32_t first_limit = 0;
    int32_t num_limits = 0;
  };

  int num_levels = 0;
  int max_depth = 0;  // at most PushdownPlace::kMaxDepth
  int num_moves = 0;
  int num_pushed = 0;
  int num_limits = 0;
  int max_token_bytes = 0;        // length of the longest token
  const int32_t* next = nullptr;  // [num_levels, num_states, num_classes]
  // Fewest tokens, at least one, to the end of the automaton's text, also after
  // calls; INT32_MAX: none.
  const int32_t* more = nullptr;  // [num_levels, num_states]
  // As PushdownFrame::cost.
  const int32_t* to_end = nullptr;  // [num_levels, num_states]
  const Move* moves = nullptr;      // [num_moves]
  const int32_t* pushed = nullptr;  // [num_pushed]  of calls, the states after
  const Counter* counters = nullptr;  // [num_states], or null
  const int32_t* limits = nullptr;    // [num_limits]
  // As `more` of ConstraintTables, before the text and after a dropped space.
  int32_t more_of_opening = 0;
  int32_t more_after_space = 0;
  const PushdownPlaces* places = nullptr;  // on the host alone
};

}  // namespace espalier
