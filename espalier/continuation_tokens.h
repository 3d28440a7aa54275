// ContinuationTokens: the tokens of texts that are scored after a prompt
// (ScoreRequest). They spell exactly the text: they add no space between prompt
// and continuation.
//
//   prompt        continuation
//   "Q: 7 + 1 ="  " 8"     ▁8      the tokens of "Q: 7 + 1 = 8" less those of
//                                  the prompt (lm-evaluation-harness)
//   "un"          "able"   able    "unable" does not begin with the prompt's
//                                  tokens: "able" as it stands within a word
//
// The prompt keeps its tokens. lm-evaluation-harness always drops as many
// tokens of the whole text as the prompt has, and may lose characters at the
// border.
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

// The text that continuations continue; empty: each stands by itself.
struct ContinuationContext {
  const Tokenizer* tokenizer = nullptr;  // null: continuations are tokens
  // True if they are outputs (Tokenizer::EncodeOutput).
  bool is_output = false;
  std::string prompt = {};
  // It follows the prompt, and has tokens of its own (EncodeOutput).
  std::string decoder_prompt = {};
};

// Returns the tokens of each continuation, for Request::continuations.
// Errors: kInvalidArgument naming continuations[i]: no UTF-8, without a token,
// or more text than kMaxScoredBytes together; kFailedPrecondition for text
// without a tokenizer.
absl::StatusOr<std::vector<std::vector<int64_t>>> ContinuationTokens(
    const ContinuationContext& context,
    const std::vector<TextOrTokens>& continuations);

}  // namespace espalier
