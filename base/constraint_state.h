// States of a constraint as its tables have them: one definition for the host
// and for devices, equal to that of TextConstraint (constrain/), or that of
// items (base/item_tables.h).
//
// Pure functions of tables in memory that the caller can read.
#pragma once

#include <cstdint>

#include "base/constraint_tables.h"
#include "base/host_device.h"
#include "base/ids.h"
#include "base/pushdown_walk.h"

namespace espalier {

inline constexpr int32_t kNoConstraintState = -1;

// These are for tables of texts. Where positions have stacks, states are
// numbers of the host's (PushdownPlaces), or PushdownPlace::state.

// True if tokens are those of the start of a text.
ESPALIER_HOST_DEVICE inline bool IsFirstToken(const ConstraintTables& tables,
                                              int32_t state) {
  if (tables.first.indptr == nullptr) return false;
  return state == tables.num_states ||
         (tables.drops_all_spaces && state == tables.num_states + 1);
}

// Returns the state of the automaton.
ESPALIER_HOST_DEVICE inline int32_t AutomatonState(
    const ConstraintTables& tables, int32_t state) {
  return state >= tables.num_states ? 0 : state;
}

// True if the state has tokens at all: `state` is one, and no end id was taken.
ESPALIER_HOST_DEVICE inline bool HasTokens(const ConstraintTables& tables,
                                           int32_t state) {
  return state >= 0 && state <= tables.num_states + 1;
}

// True if a text may end in the state. REQUIRES: HasTokens.
ESPALIER_HOST_DEVICE inline bool AcceptsText(const ConstraintTables& tables,
                                             int32_t state) {
  return tables.accepts[AutomatonState(tables, state)] != 0;
}

// Returns the fewest tokens from the state to where a text may end, INT32_MAX
// if none lead there. REQUIRES: HasTokens.
ESPALIER_HOST_DEVICE inline int32_t MinTokens(const ConstraintTables& tables,
                                              int32_t state) {
  return AcceptsText(tables, state) ? 0 : tables.more[state];
}

// True if the token adds nothing at the start of a text only.
ESPALIER_HOST_DEVICE inline bool IsDroppedSpace(const ConstraintTables& tables,
                                                TokenId token) {
  const auto adds_nothing = [token](const TokenTexts& texts) {
    return texts.indptr[token] == texts.indptr[token + 1];
  };
  return tables.first.indptr != nullptr && adds_nothing(tables.first) &&
         !adds_nothing(tables.inside);
}

ESPALIER_HOST_DEVICE inline bool IsEndId(const ConstraintTables& tables,
                                         TokenId token) {
  for (int i = 0; i < tables.num_end_ids; ++i) {
    if (tables.end_ids[i] == token) return true;
  }
  return false;
}

// Returns the position of a text, of a state with tokens.
//   frames  [height]
ESPALIER_HOST_DEVICE inline PushdownWalk WalkFrom(
    const ConstraintTables& tables, int32_t state, int32_t count,
    const PushdownFrame* frames, int height) {
  return PushdownWalk(tables.stacks, tables.num_states, tables.num_classes,
                      tables.accepts, AutomatonState(tables, state), count,
                      frames, height);
}

// As MinMore of PushdownConstraint, with INT32_MAX. REQUIRES: HasTokens.
ESPALIER_HOST_DEVICE inline int32_t MinMoreTokens(
    const ConstraintTables& tables, int32_t state, const PushdownWalk& walk) {
  if (state == tables.num_states) return tables.stacks.more_of_opening;
  if (state == tables.num_states + 1) return tables.stacks.more_after_space;
  return walk.min_more();
}

// Reads a token from the position of a state with tokens; returns the state
// after it, and kNoConstraintState if it is illegal however many may follow.
// Only after a state of the automaton, `*walk` is there.
// REQUIRES: `token` is in [0, vocab_size).
ESPALIER_HOST_DEVICE inline int32_t ReadToken(const ConstraintTables& tables,
                                              int32_t state, TokenId token,
                                              PushdownWalk* walk) {
  constexpr int32_t kNever = INT32_MAX;
  if (IsEndId(tables, token)) {
    return walk->accepts() ? tables.num_states + 2 : kNoConstraintState;
  }
  if (state == tables.num_states && IsDroppedSpace(tables, token)) {
    const bool is_live =
        walk->accepts() || tables.stacks.more_after_space != kNever;
    return is_live ? tables.num_states + 1 : kNoConstraintState;
  }
  const TokenTexts& texts =
      IsFirstToken(tables, state) ? tables.first : tables.inside;
  const int32_t begin = texts.indptr[token];
  const int32_t end = texts.indptr[token + 1];
  if (begin == end) return kNoConstraintState;
  for (int32_t i = begin; i < end; ++i) {
    if (!walk->Read(tables.classes[texts.bytes[i]])) return kNoConstraintState;
  }
  return walk->min_to_end() == kNever ? kNoConstraintState : walk->state();
}

// True if the token is legal where the sequence has room for `room` tokens.
// REQUIRES: as ReadToken.
ESPALIER_HOST_DEVICE inline bool IsLegalToken(const ConstraintTables& tables,
                                              const PushdownPlace& place,
                                              int32_t room, TokenId token) {
  if (room < 1 || !HasTokens(tables, place.state)) return false;
  PushdownWalk walk =
      WalkFrom(tables, place.state, place.count, place.frames, place.height);
  const int32_t next = ReadToken(tables, place.state, token, &walk);
  if (next < 0) return false;
  if (!HasTokens(tables, next) || walk.accepts()) return true;
  return MinMoreTokens(tables, next, walk) <= room - 1;
}

// Returns the state after a token, kNoConstraintState if it is illegal or none
// may follow it where the sequence then has room for `room` tokens.
ESPALIER_HOST_DEVICE inline int32_t StateAfterToken(
    const ConstraintTables& tables, int32_t state, int32_t room, TokenId token,
    PushdownWalk* walk) {
  if (!HasTokens(tables, state)) return kNoConstraintState;
  const int32_t after = ReadToken(tables, state, token, walk);
  if (!HasTokens(tables, after)) return kNoConstraintState;
  return MinMoreTokens(tables, after, *walk) > room ? kNoConstraintState
                                                    : after;
}

// Writes the place after a walk to a state.
ESPALIER_HOST_DEVICE inline void WritePlace(const ConstraintTables& tables,
                                            int32_t state,
                                            const PushdownWalk& walk,
                                            PushdownPlace* to) {
  to->state = state;
  to->count = 0;
  to->height = 0;
  if (state < 0 || state >= tables.num_states) return;
  to->count = walk.count();
  to->height = walk.height();
  walk.WriteFrames(to->frames);
}

// The next ones are for tables of items, too. Where positions have stacks, they
// are for the host.

// True if no token may follow where the sequence has room for `room` tokens: an
// end id was taken, or none fits. REQUIRES: `state` follows legal tokens.
ESPALIER_HOST_DEVICE inline bool EndsAt(const ConstraintTables& tables,
                                        int32_t state, int32_t room) {
  if (tables.has_items()) return tables.items.Ends(state, room);
#ifndef __CUDA_ARCH__
  if (tables.has_stacks()) return tables.stacks.places->EndsAt(state, room);
#endif
  return !HasTokens(tables, state) || tables.more[state] > room;
}

// Returns the state after a token; kNoConstraintState if the token is illegal
// however many may follow.
// REQUIRES: `token` is in [0, vocab_size).
ESPALIER_HOST_DEVICE inline int32_t AdvanceState(const ConstraintTables& tables,
                                                 int32_t state, TokenId token) {
  constexpr int32_t kNever = INT32_MAX;
  if (tables.has_items()) return tables.items.Advance(state, token);
#ifndef __CUDA_ARCH__
  if (tables.has_stacks())
    return tables.stacks.places->PlaceAfter(state, token);
#endif
  if (!HasTokens(tables, state)) return kNoConstraintState;
  if (IsEndId(tables, token)) {
    return AcceptsText(tables, state) ? tables.num_states + 2
                                      : kNoConstraintState;
  }
  if (state == tables.num_states && IsDroppedSpace(tables, token)) {
    const int32_t after = tables.num_states + 1;
    return MinTokens(tables, after) == kNever ? kNoConstraintState : after;
  }
  const TokenTexts& texts =
      IsFirstToken(tables, state) ? tables.first : tables.inside;
  const int32_t begin = texts.indptr[token];
  const int32_t end = texts.indptr[token + 1];
  if (begin == end) return kNoConstraintState;
  int32_t next = AutomatonState(tables, state);
  // On a device a load that depends on another one takes long: those of a few
  // bytes' classes do not.
  constexpr int kAtOnce = 4;
  for (int32_t i = begin; i < end; i += kAtOnce) {
    int classes[kAtOnce];
    for (int j = 0; j < kAtOnce; ++j) {
      const int32_t at = i + j < end ? i + j : i;
      classes[j] = tables.classes[texts.bytes[at]];
    }
    for (int j = 0; j < kAtOnce && i + j < end; ++j) {
      next = tables.next[int64_t{next} * tables.num_classes + classes[j]];
      if (next < 0) return kNoConstraintState;
    }
  }
  return MinTokens(tables, next) == kNever ? kNoConstraintState : next;
}

// True if the token is legal where the sequence has room for `room` tokens, as
// Constraint has it (constrain/constraint.h). REQUIRES: as AdvanceState.
ESPALIER_HOST_DEVICE inline bool IsLegalToken(const ConstraintTables& tables,
                                              int32_t state, int32_t room,
                                              TokenId token) {
  if (room < 1) return false;
  if (tables.has_items()) return tables.items.IsLegal(state, room, token);
#ifndef __CUDA_ARCH__
  if (tables.has_stacks()) {
    return tables.stacks.places->IsLegal(state, room, token);
  }
#endif
  const int32_t next = AdvanceState(tables, state, token);
  if (next < 0) return false;
  return next == tables.num_states + 2 || MinTokens(tables, next) <= room - 1;
}

}  // namespace espalier
