// The catalogues of GeneratorOptions::items.
//
// Thread safety: a function without state.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "constrain/item_catalogues.h"
#include "espalier/generator_options.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Returns the catalogues of the files; `end_ids` as of ReadItems. They and
// later ones have tries by `build`. Errors: kInvalidArgument naming `items` and
// a name that is none, or is given twice; as LoadItems, naming the file.
absl::StatusOr<std::shared_ptr<ItemCatalogues>> LoadCatalogues(
    std::span<const ItemsFile> files, const Tokenizer* tokenizer,
    int vocab_size, std::span<const TokenId> end_ids,
    ItemTrieBuilder build = BuildItemTrie);

}  // namespace espalier
