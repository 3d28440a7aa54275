#include "beam/strategy/allowed_sequences.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/shared_list.h"
#include "beam/strategy/selection_options.h"

namespace espalier {
namespace {

// Returns the number of tokens before a final ending token.
int64_t NumPlainTokens(const std::vector<int64_t>& sequence,
                       std::span<const TokenId> finishing) {
  const bool ends = !sequence.empty() &&
                    std::ranges::binary_search(finishing, sequence.back());
  return static_cast<int64_t>(sequence.size()) - (ends ? 1 : 0);
}

}  // namespace

std::shared_ptr<const ItemConstraint> AllowedSequencesOf(
    const GenerationParams& params) {
  if (!params.allowed_sequences.has_value()) return nullptr;
  const SharedList<std::vector<int64_t>>& sequences = *params.allowed_sequences;
  const SharedList<TokenId> finishing = FinishingTokenIds(params);
  const auto make = [&] {
    TokenLists possible;
    for (const std::vector<int64_t>& sequence : sequences) {
      if (NumPlainTokens(sequence, finishing) < params.min_new_tokens) continue;
      possible.tokens.insert(possible.tokens.end(), sequence.begin(),
                             sequence.end());
      possible.EndList();
    }
    return ItemCatalogue(possible);
  };
  if (sequences.empty()) {
    return std::make_shared<const ItemConstraint>(
        std::make_shared<const ItemCatalogue>(make()));
  }
  DerivedValues::Key key(finishing.begin(), finishing.end());
  key.push_back(params.min_new_tokens);
  return std::make_shared<const ItemConstraint>(
      sequences.Derived<ItemCatalogue>(key, make));
}

}  // namespace espalier
