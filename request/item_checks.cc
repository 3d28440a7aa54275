#include "request/item_checks.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/status.h"
#include "constrain/item_catalogue.h"

namespace espalier {

absl::Status CheckItem(std::span<const TokenId> item, int64_t num_tokens_so_far,
                       std::span<const TokenId> end_ids) {
  if (item.empty())
    return InvalidArgument("an item must have a token, got none");
  if (std::ssize(item) > kMaxItemTokens) {
    return InvalidArgument("an item must have at most ", kMaxItemTokens,
                           " tokens, got ", item.size());
  }
  if (num_tokens_so_far > ItemCatalogue::kMaxTokens) {
    return InvalidArgument("all items must have at most ",
                           ItemCatalogue::kMaxTokens, " tokens together");
  }
  for (size_t i = 0; i + 1 < item.size() && !end_ids.empty(); ++i) {
    if (std::ranges::find(end_ids, item[i]) == end_ids.end()) continue;
    return InvalidArgument("item[", i, "], which is not its last token, must ",
                           "not be an id that ends the model's output, got ",
                           item[i]);
  }
  return absl::OkStatus();
}

}  // namespace espalier
