// ContinuationTokens: the tokens of texts that are scored after a prompt
// (ScoreRequest), as a model would read them there.
//
//   prompt "Q: 7 + 1 ="     continuation " 8"     ▁8        of "Q: 7 + 1 = 8"
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "espalier/generator.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// The context of continuations.
struct ContinuationContext {
  const Tokenizer* tokenizer = nullptr;  // null: continuations are tokens
  // Whether they are outputs (Tokenizer::EncodeOutput).
  bool is_output = false;
  // The text before them; empty: each stands by itself.
  std::string text = {};
};

// Those of each continuation, which are then what Request::continuations are.
// Errors: kInvalidArgument naming continuations[i]: no UTF-8, without a token,
// or more text than kMaxScoredBytes together; kFailedPrecondition for text
// without a tokenizer.
absl::StatusOr<std::vector<std::vector<int64_t>>> ContinuationTokens(
    const ContinuationContext& context,
    const std::vector<TextOrTokens>& continuations);

}  // namespace espalier
