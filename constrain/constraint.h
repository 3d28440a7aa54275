// Constraint: a language of token sequences that the output of a request is
// restricted to, by states: the tokens that may follow, the state after each of
// them, and where a sequence ends. A state is an int32_t, so that a beam's
// state is copied at no cost when the beam forks.
//
//   Constraint::State state = constraint->start();
//   constraint->LegalTokens(state, 8).tokens;  // the only ones that may follow
//   state = constraint->Advance(state, token);
//   constraint->accepts(state, 7);             // the sequence is one of them
//   constraint->ends(state, 7);                // and no token may follow
//
// A sequence has a token budget, max_new_tokens. Its *room* is what is left of
// it. A token is legal only if a sequence of the language that it begins fits
// into the room after it. So if the start has legal tokens, any choice of legal
// tokens ends within the budget, in the language. A sequence ends without an
// EOS id when it is in the language and no longer one fits.
//
// An EOS id is a token as others: it is legal where a sequence has one.
//
// Thread safety: constant after construction, or as if; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/constraint_tables.h"
#include "base/ids.h"

namespace espalier {

class Constraint {
 public:
  using State = int32_t;
  static constexpr State kNone = -1;

  struct Legal {
    // Ascending. They stay where they are as long as the constraint lives.
    std::span<const TokenId> tokens = {};
    // Number of them after which nothing may follow.
    int num_last = 0;
    // States that are kept because the list was made, if these take memory
    // (StateBytes). Different lists may have some of them in common.
    std::span<const State> states = {};
    // Not null: the tokens cannot be known, and this is the error of the
    // request. It stays where it is as long as the constraint lives.
    const absl::Status* error = nullptr;
  };

  virtual ~Constraint() = default;

  virtual State start() const = 0;
  // Returns the state after `token`, or kNone if it may not follow.
  virtual State Advance(State state, TokenId token) const = 0;
  // Returns the tokens that may follow where the sequence has room for `room`
  // tokens. The lists of a state are kept, one for all numbers from which the
  // same tokens follow.
  virtual Legal LegalTokens(State state, int32_t room) const = 0;
  // True if LegalTokens(state, room) has its list. False: to make it may take
  // up to a second, in which other threads may call.
  virtual bool IsListed(State, int32_t /*room*/) const { return true; }
  // Makes the list of LegalTokens(state, room) unless that takes more than
  // `max_effort`, of some nanoseconds each. Returns false if it takes more,
  // also if the list is made: that depends on the language and vocabulary
  // alone.
  virtual bool TryList(State, int32_t /*room*/, int64_t /*max_effort*/) const {
    return true;
  }
  // True if the sequence is in the language. It may also begin another one.
  // REQUIRES: not the start.
  virtual bool accepts(State state, int32_t room) const = 0;
  // True if no token may follow. REQUIRES: not the start.
  virtual bool ends(State state, int32_t room) const = 0;

  // Returns a number of tokens that no sequence exceeds.
  virtual int32_t max_length() const {
    return std::numeric_limits<int32_t>::max();
  }
  // Upper bounds for any `num_sequences` different sequences of one length: of
  // their legal tokens together, and of those legal tokens after which the
  // sequence ends, unless it ends after all of them.
  virtual int64_t MaxLegal(int64_t num_sequences) const = 0;
  virtual int64_t MaxLast(int64_t num_sequences) const = 0;

  // Returns tables from which a device finds legal tokens and states, equal to
  // those of this interface; without any, the lists say which are legal. Valid
  // as long as the constraint.
  virtual std::optional<ConstraintTables> tables() const {
    return std::nullopt;
  }
  // Returns the owner of the trie of tables() with items, which constraints of
  // one catalogue share; null without.
  virtual std::shared_ptr<const void> trie_owner() const { return nullptr; }

  // Appends to `*bytes` the bytes with which every text continues after
  // `state`, up to `max_bytes`: while one byte alone may follow, and no text
  // ends. None for a language that is not one of texts. Near the end of the
  // room others may be forced, too.
  virtual void AppendForcedBytes(State /*state*/, size_t /*max_bytes*/,
                                 std::string* /*bytes*/) const {}
  // Returns the bytes that `token` adds to a text after `state`; empty if it
  // adds none. Valid as long as the constraint.
  virtual std::string_view BytesOf(State /*state*/, TokenId /*token*/) const {
    return {};
  }

  // Returns the bytes that are kept of a state in Legal::states.
  virtual int64_t StateBytes(State) const { return 0; }
  // Limit on the bytes of the different lists that one request may need, and of
  // their states.
  virtual int64_t max_list_bytes() const {
    return std::numeric_limits<int64_t>::max();
  }
  // True if the lists so far, of all requests, take more than that.
  virtual bool is_full() const { return false; }
};

}  // namespace espalier
