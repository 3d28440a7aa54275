// Log-probabilities of tokens, in each API's form.
//
//   completions   {"text_offset": [...], "token_logprobs": [...],
//                  "tokens": [...], "top_logprobs": [{"name": log_prob}, ...]}
//   chat          {"content": [{"token", "logprob", "bytes",
//                               "top_logprobs": [{...}, ...]}, ...]}
//   tokens        {"content": [{"token_id", "logprob", "rank",
//                               "top_logprobs": [{...}, ...]}, ...]}
//
// A log-probability of -inf is written as -9999, as other servers do.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_log_prob.h"
#include "openai/call.h"
#include "openai/token_names.h"
#include "text/tokenizer/incremental_detokenizer.h"

namespace espalier::openai {

// Log-probability of one token; null for the first token of a prompt.
struct PlacedLogProb {
  TokenId token = 0;
  const TokenLogProb* log_prob = nullptr;
  size_t text_offset = 0;  // start of its text, in characters
};

// Returns where the text of each of `tokens` begins in `text`, in characters,
// plus `base`; `text` may be cut. `begin` is the start of the text; unset:
// without a tokenizer.
std::vector<size_t> TextOffsets(std::span<const TokenId> tokens,
                                std::string_view text, size_t base,
                                std::optional<IncrementalDetokenizer> begin);

// One list of log-probabilities: `begin`, then an item for each token. After
// the last list comes "}".
struct LogProbList {
  std::string_view begin;
  void (*append)(const PlacedLogProb& token, const TokenNames& names,
                 std::string* out);
};
std::span<const LogProbList> LogProbListsOf(const Call& call);

void AppendLogProbs(const Call& call, std::span<const PlacedLogProb> tokens,
                    const TokenNames& names, std::string* out);

// Appends the prompt's log-probabilities in vLLM's form: [null, {"token id":
// {"logprob", "rank", "decoded_token"}, ...}, ...]. They cover the prompt's
// last tokens; the ones before, at least the first, have null.
void AppendPromptLogProbs(std::span<const TokenLogProb> log_probs,
                          int64_t num_prompt_tokens, const TokenNames& names,
                          std::string* out);
// Appends one of its objects.
void AppendPromptLogProb(const TokenLogProb& log_prob, const TokenNames& names,
                         std::string* out);

}  // namespace espalier::openai
