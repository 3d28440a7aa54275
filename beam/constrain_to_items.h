// The constraint of a request whose `constraint` names a catalogue of items.
//
// Thread safety: a function without state.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "constrain/item_catalogues.h"
#include "constrain/item_constraint.h"
#include "request/request.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Returns the constraint of `request`, which ValidateRequest has passed, to the
// latest version of its catalogue; null if it names none. Takes time in
// proportion to what it excludes, not to the catalogue; with min_new_tokens and
// ids that end the output, also to the items with as many tokens, unless one of
// the latest requests had the same (ItemCatalogue::EndedBy).
//   tokenizer  null: it must exclude no texts
// Errors: kInvalidArgument naming `constraint.items` and the catalogues, if
// there is none of this name, or an id of its items that is not in the
// vocabulary or ends the output before an item's last token;
// `constraint.exclude` or `exclude_prefixes`, if they exclude a text that has
// no tokens, or all items; `min_new_tokens` if no item is so long;
// `max_new_tokens`, if it has no room for any item, and the least that has.
absl::StatusOr<std::shared_ptr<const ItemConstraint>> ConstrainToItems(
    const ItemCatalogues& catalogues, const Tokenizer* tokenizer,
    int vocab_size, const Request& request);

}  // namespace espalier
