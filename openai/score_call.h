// POST /generative_scoring, as vLLM has it: how likely the tokens of
// "label_token_ids" are after query and item together; and, where there are
// none, how likely each item is after the query.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "openai/answer.h"
#include "openai/call.h"
#include "openai/limits.h"
#include "request/generation_params.h"
#include "request/request.h"

namespace espalier::openai {

// Tokens that a call may have scored, of all items together: some 10 MB of
// answer.
inline constexpr int64_t kMaxTokensOfScoreCall = int64_t{1} << 18;

struct ScoreCall {
  std::string model = {};  // empty: none was named
  TextOrTokens query = {};
  std::vector<TextOrTokens> items = {};  // at least one
  // Each item makes a prompt, after which these are scored. Empty: the items
  // are scored after the query.
  std::vector<TokenId> label_token_ids = {};
  bool item_first = false;         // item and query instead of query and item
  bool apply_softmax = true;       // scores are shares of what is compared
  bool add_special_tokens = true;  // BOS in front of the query, or its template
  bool append_eos = false;         // items end in the model's EOS
  // The decoder prompt, and params of scheduling.
  GenerationParams params = {};
  std::string request_id = {};  // empty: none was given
  std::vector<std::string> warnings = {};

  bool scores_labels() const { return !label_token_ids.empty(); }
  // Bytes of text to tokenize: each item's with the query's.
  int64_t num_text_bytes() const;
};

// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<ScoreCall> ReadScoreCall(std::string_view body,
                                        const Limits& limits = {});

// The tokens of all prompts and continuations of an answer.
struct ScoreCounts {
  int64_t read = 0;
  int64_t cached = 0;
};

// {"id", "object": "list", "created", "model", "data": [{"index", "object":
// "score", "score", ...}], "usage"}. Of an item: where labels are scored
// "label_logprobs" and "label_ranks", in their order; else "logprob", the sum,
// "is_greedy", "token_ids", "token_logprobs" and "ranks".
//   scores  of all labels of an item, one item's after the other's; or one an
//           item
std::string WriteScores(const ScoreCall& call, const AnswerHead& head,
                        std::span<const ContinuationScore> scores,
                        const ScoreCounts& counts);

}  // namespace espalier::openai
