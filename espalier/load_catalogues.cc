#include "espalier/load_catalogues.h"

#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "request/read_items.h"

namespace espalier {
namespace {

absl::Status OfItems(const absl::Status& error) {
  if (error.ok()) return error;
  return MakeFieldError(error.code(), OptionName{"items"}, ": ",
                        Message(error));
}

}  // namespace

absl::StatusOr<std::shared_ptr<ItemCatalogues>> LoadCatalogues(
    std::span<const ItemsFile> files, const Tokenizer* tokenizer,
    int vocab_size, std::span<const TokenId> end_ids, ItemTrieBuilder build) {
  auto catalogues = std::make_shared<ItemCatalogues>(std::move(build));
  for (const ItemsFile& file : files) {
    RETURN_IF_ERROR(OfItems(CheckCatalogueName(file.name)));
    if (catalogues->Find(file.name) != nullptr) {
      return InvalidField(OptionName{"items"}, " must have each name once",
                          Got(Concat(ShownInQuotes(file.name), " twice")));
    }
    absl::StatusOr<std::shared_ptr<const ItemCatalogue>> items = LoadItems(
        file.path, tokenizer, vocab_size, end_ids, catalogues->trie_builder());
    if (!items.ok()) return OfItems(items.status());
    catalogues->Put(file.name, *std::move(items));
  }
  return catalogues;
}

}  // namespace espalier
