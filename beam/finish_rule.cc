#include "beam/finish_rule.h"

#include <algorithm>

#include "beam/selection_options.h"

namespace espalier {

FinishRule::FinishRule(const GenerationParams& params)
    : max_new_tokens_(SaturateToInt(params.max_new_tokens.value())),
      eos_token_ids_(DistinctEosTokenIds(params)),
      token_ids_(FinishingTokenIds(params)) {}

std::optional<FinishReason> FinishRule::ReasonFor(TokenId token,
                                                  int length) const {
  if (std::ranges::binary_search(eos_token_ids_, token)) {
    return FinishReason::kEos;
  }
  if (std::ranges::binary_search(token_ids_, token)) return FinishReason::kStop;
  if (length >= max_new_tokens_) return FinishReason::kLength;
  return std::nullopt;
}

}  // namespace espalier
