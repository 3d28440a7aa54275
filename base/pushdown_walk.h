// PushdownWalk: follows a text by the tables of a PushdownAutomaton
// (base/pushdown_tables.h), with its stack: one definition for the host and for
// devices.
//
// Pure functions of arrays in memory that the caller can read.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "base/pushdown_tables.h"

namespace espalier {

ESPALIER_HOST_DEVICE inline int32_t AddTokens(int32_t a, int32_t b) {
  return a < INT32_MAX - b ? a + b : INT32_MAX;
}

ESPALIER_HOST_DEVICE inline int32_t NodeOf(const PushdownTables& tables,
                                           int num_states, int height,
                                           int32_t state) {
  const int room = tables.max_depth - height;
  const int level = room < tables.num_levels ? room : tables.num_levels - 1;
  return level * num_states + state;
}

// Returns the frame of a return to `after` above `height` frames, the last of
// which is `below`, the default one if there is none.
ESPALIER_HOST_DEVICE inline PushdownFrame FrameAbove(
    const PushdownTables& tables, int num_states, const uint8_t* accepts,
    const PushdownFrame& below, int height, int32_t after) {
  const int32_t node = NodeOf(tables, num_states, height, after);
  const bool may_end = accepts[after] != 0;
  PushdownFrame frame;
  frame.state = after;
  frame.cost = AddTokens(tables.to_end[node], below.cost);
  frame.more = AddTokens(tables.more[node], below.cost);
  if (may_end && below.more < frame.more) frame.more = below.more;
  frame.accepts = may_end && below.accepts != 0 ? 1 : 0;
  return frame;
}

// Returns the fewest tokens, at least one, to where a text may end, from a
// state without a counter above a frame; INT32_MAX if there are none.
//   accepts  the state's text may end
ESPALIER_HOST_DEVICE inline int32_t MoreAbove(const PushdownTables& tables,
                                              bool accepts, int32_t node,
                                              const PushdownFrame& below) {
  const int32_t own = AddTokens(tables.more[node], below.cost);
  return accepts && below.more < own ? below.more : own;
}

// Returns the smallest count from which all tokens are legal, and continue, as
// they do from `count` (PushdownAutomaton::SimilarCount). What texts need after
// them is the same, or higher by one number.
ESPALIER_HOST_DEVICE inline int32_t SimilarCount(const PushdownTables& tables,
                                                 int32_t state, int32_t count) {
  if (tables.counters == nullptr) return count;
  const PushdownTables::Counter& counter = tables.counters[state];
  if (counter.max_count == INT32_MIN) return count;
  const int32_t* const limits = tables.limits + counter.first_limit;
  int num_below = 0;  // the first limit that is not below the count
  for (int end = counter.num_limits; num_below < end;) {
    const int middle = (num_below + end) / 2;
    if (limits[middle] < count) {
      num_below = middle + 1;
    } else {
      end = middle;
    }
  }
  if (num_below < counter.num_limits &&
      limits[num_below] - count < tables.max_token_bytes) {
    return count;
  }
  const int32_t similar = num_below == 0 ? 0 : limits[num_below - 1] + 1;
  // A need that is too large for its type is as none.
  constexpr int64_t kMaxNeed = INT32_MAX / 2;
  const int64_t lacking = int64_t{counter.region_least} - similar;
  return lacking > 0 && lacking * counter.bytes_for_one > kMaxNeed ? count
                                                                   : similar;
}

// A position as a text is read: what is left of the stack of a place, which is
// not written, and what was pushed above it.
class PushdownWalk {
 public:
  // REQUIRES: the arrays and the frames outlive it; `state` is one of the
  // automaton.
  //   frames  [height]
  ESPALIER_HOST_DEVICE PushdownWalk(const PushdownTables& tables,
                                    int num_states, int num_classes,
                                    const uint8_t* accepts, int32_t state,
                                    int32_t count, const PushdownFrame* frames,
                                    int height)
      : tables_(tables),
        num_states_(num_states),
        num_classes_(num_classes),
        accepts_(accepts),
        frames_(frames),
        num_kept_(height),
        state_(state),
        count_(count) {}

  ESPALIER_HOST_DEVICE int32_t state() const { return state_; }
  ESPALIER_HOST_DEVICE int32_t count() const { return count_; }
  ESPALIER_HOST_DEVICE int height() const { return num_kept_ + num_pushed_; }
  // Writes the stack, [height()].
  ESPALIER_HOST_DEVICE void WriteFrames(PushdownFrame* to) const {
    for (int i = 0; i < num_kept_; ++i) to[i] = frames_[i];
    for (int i = num_kept_; i < height(); ++i) {
      to[i] = FrameAbove(tables_, num_states_, accepts_,
                         i > 0 ? to[i - 1] : PushdownFrame(), i,
                         pushed_[i - num_kept_]);
    }
  }

  // Reads a byte. Returns false if it is illegal; then there is no position.
  ESPALIER_HOST_DEVICE bool Read(int byte_class) {
    for (;;) {
      const int32_t next =
          tables_.next[int64_t{NodeOf(state_)} * num_classes_ + byte_class];
      if (next >= 0) {
        state_ = next % num_states_;
        return true;
      }
      if (next <= PushdownTables::kFirstMove) {
        return Make(tables_.moves[PushdownTables::kFirstMove - next]);
      }
      if (next == PushdownTables::kNone || height() == 0) return false;
      state_ =
          num_pushed_ > 0 ? pushed_[--num_pushed_] : frames_[--num_kept_].state;
      count_ = 0;
    }
  }

  // True if the text may end here.
  ESPALIER_HOST_DEVICE bool accepts() const {
    return accepts_[state_] != 0 && Top().accepts != 0;
  }
  // The fewest tokens, at least one, to where it may end; INT32_MAX if there
  // are none.
  ESPALIER_HOST_DEVICE int32_t min_more() const { return MoreAbove(Top()); }
  ESPALIER_HOST_DEVICE int32_t min_to_end() const {
    const PushdownFrame top = Top();
    return accepts_[state_] != 0 && top.accepts != 0 ? 0 : MoreAbove(top);
  }

 private:
  ESPALIER_HOST_DEVICE int32_t NodeOf(int32_t state) const {
    return espalier::NodeOf(tables_, num_states_, height(), state);
  }
  // Returns the last frame, the default one if there is none.
  ESPALIER_HOST_DEVICE PushdownFrame Top() const {
    PushdownFrame top =
        num_kept_ > 0 ? frames_[num_kept_ - 1] : PushdownFrame();
    for (int i = 0; i < num_pushed_; ++i) {
      top = FrameAbove(tables_, num_states_, accepts_, top, num_kept_ + i,
                       pushed_[i]);
    }
    return top;
  }
  ESPALIER_HOST_DEVICE int32_t MoreAbove(const PushdownFrame& below) const {
    int32_t own = tables_.more[NodeOf(state_)];
    if (tables_.counters != nullptr) {
      const int32_t lacking = MoreBelowLeast(tables_.counters[state_]);
      if (lacking > own) own = lacking;
    }
    own = AddTokens(own, below.cost);
    return accepts_[state_] != 0 && below.more < own ? below.more : own;
  }
  ESPALIER_HOST_DEVICE bool Make(const PushdownTables::Move& move) {
    for (int i = 0; i < move.num_calls; ++i) {
      pushed_[num_pushed_++] = tables_.pushed[move.first_call + i];
    }
    if (tables_.counters != nullptr) {
      // A call begins with a count of 0.
      const int32_t before = move.reader == state_ ? count_ : 0;
      count_ = CountAfter(move, before);
      if (count_ < 0) return false;
    }
    state_ = move.next;
    return true;
  }
  // As PushdownAutomaton::CountAfter.
  ESPALIER_HOST_DEVICE int32_t CountAfter(const PushdownTables::Move& move,
                                          int32_t count) const {
    if (move.kind == PushdownTables::kHasLimit) {
      const PushdownTables::Counter& reader = tables_.counters[move.reader];
      if (count > reader.limit || count < reader.least) return -1;
    }
    const PushdownTables::Counter& next = tables_.counters[move.next];
    if (next.max_count == INT32_MIN) return 0;
    if (move.kind == PushdownTables::kAddsOne) ++count;
    if (count > next.beyond) count = next.beyond;
    return count <= next.max_count ? count : -1;
  }
  // As of PushdownAutomaton.
  ESPALIER_HOST_DEVICE int32_t
  MoreBelowLeast(const PushdownTables::Counter& counter) const {
    if (counter.max_count == INT32_MIN || count_ >= counter.region_least) {
      return 0;
    }
    const int64_t more = int64_t{counter.bytes_for_one} *
                             (int64_t{counter.region_least} - count_) +
                         counter.more_below;
    return more < INT32_MAX ? static_cast<int32_t>(more) : INT32_MAX;
  }

  const PushdownTables& tables_;
  const int num_states_;
  const int num_classes_;
  const uint8_t* const accepts_;
  const PushdownFrame* const frames_;
  int num_kept_;
  int num_pushed_ = 0;
  int32_t state_;
  int32_t count_;
  int32_t pushed_[PushdownPlace::kMaxDepth];
};

}  // namespace espalier
