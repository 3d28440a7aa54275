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

namespace espalier {

inline constexpr int32_t kNoConstraintState = -1;

// These are for tables of texts.

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

// The next ones are for tables of items, too.

// True if no token may follow where the sequence has room for `room` tokens: an
// end id was taken, or none fits. REQUIRES: `state` follows legal tokens.
ESPALIER_HOST_DEVICE inline bool EndsAt(const ConstraintTables& tables,
                                        int32_t state, int32_t room) {
  if (tables.has_items()) return tables.items.Ends(state, room);
  return !HasTokens(tables, state) || tables.more[state] > room;
}

// Returns the state after a token; kNoConstraintState if the token is illegal
// however many may follow.
// REQUIRES: `token` is in [0, vocab_size).
ESPALIER_HOST_DEVICE inline int32_t AdvanceState(const ConstraintTables& tables,
                                                 int32_t state, TokenId token) {
  constexpr int32_t kNever = INT32_MAX;
  if (tables.has_items()) return tables.items.Advance(state, token);
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
  for (int32_t i = begin; i < end; ++i) {
    next = tables.next[int64_t{next} * tables.num_classes +
                       tables.classes[texts.bytes[i]]];
    if (next < 0) return kNoConstraintState;
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
  const int32_t next = AdvanceState(tables, state, token);
  if (next < 0) return false;
  return next == tables.num_states + 2 || MinTokens(tables, next) <= room - 1;
}

}  // namespace espalier
