// FinishRule: which tokens end a sequence, and as what.
#pragma once

#include <optional>
#include <vector>

#include "base/ids.h"
#include "exec_request/generation_params.h"
#include "exec_request/request.h"

namespace espalier {

class FinishRule {
 public:
  // `params` as ValidateParams leaves them.
  explicit FinishRule(const GenerationParams& params);

  // How a sequence ends with `token` as its `length`-th; nullopt if it goes on.
  std::optional<FinishReason> ReasonFor(TokenId token, int length) const;

  int max_new_tokens() const { return max_new_tokens_; }
  // EOS and stop ids, ascending, each once.
  const std::vector<TokenId>& token_ids() const { return token_ids_; }

 private:
  int max_new_tokens_;
  std::vector<TokenId> eos_token_ids_;  // ascending
  std::vector<TokenId> token_ids_;
};

}  // namespace espalier
