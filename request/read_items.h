// Catalogues of items from JSON lines: one item a line, a list of token ids or
// a text. A text has the tokens with which the model writes it
// (Tokenizer::EncodeOutput). Blank lines are skipped.
//
//   [17, 4095, 8191, 3]
//   "The Tempest"
//
// Or from a file of NumPy (request/read_numpy_items.h).
//
// Thread safety: functions without state.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "constrain/item_catalogue.h"
#include "constrain/item_trie_builder.h"
#include "request/item_checks.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Checks the name of a catalogue: 1 to 64 letters, digits, ".", "_" and "-",
// but not "." or "..".
// Errors: kInvalidArgument with the name.
absl::Status CheckCatalogueName(std::string_view name);

// Returns the tokens of a line.
// Errors: as ReadItems, without the line's number.
absl::StatusOr<std::vector<TokenId>> ReadItem(std::string_view line,
                                              const Tokenizer* tokenizer,
                                              int vocab_size);

// Returns the tokens of a text that is an item.
// Errors: as Tokenizer::EncodeOutput; kInvalidArgument if they are more than
// kMaxItemTokens, which a far too long text shows at its beginning.
absl::StatusOr<std::vector<TokenId>> ItemOfText(const Tokenizer& tokenizer,
                                                const std::string& text);

// Returns the catalogue of the bytes of a file.
//   tokenizer  null: texts are refused
//   end_ids    ids that end outputs, which an item has last or not at all:
//              those of the model (EndIdsByDefault)
//   build      builds its trie; that of a GPU is Generator's, by
//              ItemCatalogues::trie_builder()
// Errors: kInvalidArgument naming the line, by its number from 1, and what is
// wrong with it; as ReadNumpyItems; or if there is no item, or too many.
absl::StatusOr<std::shared_ptr<const ItemCatalogue>> ReadItems(
    std::string_view bytes, const Tokenizer* tokenizer, int vocab_size,
    std::span<const TokenId> end_ids,
    const ItemTrieBuilder& build = BuildItemTrie);

// Returns the catalogue of a file.
// Errors: as ReadItems and MappedFile::Open, naming the file.
absl::StatusOr<std::shared_ptr<const ItemCatalogue>> LoadItems(
    const std::string& path, const Tokenizer* tokenizer, int vocab_size,
    std::span<const TokenId> end_ids,
    const ItemTrieBuilder& build = BuildItemTrie);

}  // namespace espalier
