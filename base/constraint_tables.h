// ConstraintTables: a language for one vocabulary as arrays, so that a device
// can find the legal tokens of a state (kernels/constrain/): items of a
// catalogue, which an ItemConstraint offers (base/item_tables.h), or texts. Of
// texts a TextConstraint offers them (constrain/text_constraint.h), which says
// what its states and tokens are.
//
//   state   0 to num_states - 1   of the automaton; 0 is its start
//           num_states            before the first token
//           num_states + 1        after a dropped space there
//           num_states + 2        after an end id
//
// A value: pointers to arrays that others own, in host memory or in a
// device's.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "base/ids.h"
#include "base/item_tables.h"
#include "base/pushdown_tables.h"

namespace espalier {

// The place of a sequence in the constraint of its request. By default no token
// is legal there.
struct ConstraintPlace {
  int32_t state = -1;
  int32_t room = 0;  // for tokens
  friend bool operator==(const ConstraintPlace&,
                         const ConstraintPlace&) = default;
};

// Token t adds bytes[indptr[t], indptr[t + 1]) to a text.
struct TokenTexts {
  const int32_t* indptr = nullptr;  // [vocab_size + 1]
  const uint8_t* bytes = nullptr;
};

struct ConstraintTables {
  int vocab_size = 0;
  // With items all below is unset.
  ItemTables items = {};
  TokenTexts inside = {};
  // Tokens at the start of a text; null: as `inside`. A token that adds nothing
  // here and something inside is a space that is dropped.
  TokenTexts first = {};
  bool drops_all_spaces = false;  // `first` holds after a dropped space, too

  int num_states = 0;
  int num_classes = 0;
  const uint8_t* classes = nullptr;  // [256]  by byte
  const int32_t* next = nullptr;     // [num_states, num_classes]; -1: none
  const uint8_t* accepts = nullptr;  // [num_states]  1: a text may end
  // Fewest tokens, at least one, from a state to where a text may end;
  // INT32_MAX if there are none.
  const int32_t* more = nullptr;  // [num_states + 2]
  int num_end_ids = 0;
  const TokenId* end_ids = nullptr;  // ascending; they add no text
  // Texts whose positions have stacks have this in place of `next` and `more`.
  PushdownTables stacks = {};

  ESPALIER_HOST_DEVICE bool has_items() const {
    return items.trie.num_nodes > 0;
  }
  ESPALIER_HOST_DEVICE bool has_stacks() const { return stacks.num_levels > 0; }
};

}  // namespace espalier
