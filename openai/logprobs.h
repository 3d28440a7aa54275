// Log-probabilities of tokens, in each API's form.
//
//   completions   {"text_offset": [...], "token_logprobs": [...],
//                  "tokens": [...], "top_logprobs": [{"name": log_prob}, ...]}
//   chat          {"content": [{"token", "logprob", "bytes",
//                               "top_logprobs": [{...}, ...]}, ...]}
//   tokens        {"content": [{"token_id", "logprob", "rank",
//                               "top_logprobs": [{...}, ...]}, ...]}
//
// One of no chance, -inf, is written as -9999, as others write it.
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

// Of one token; nullptr of the first of a prompt, which follows nothing.
struct PlacedLogProb {
  TokenId token = 0;
  const TokenLogProb* log_prob = nullptr;
  size_t text_offset = 0;  // where its text begins, in characters
};

// Where the texts of `tokens` begin in `text`, which they spell, up to where it
// was cut; `base` further. `begin` is where it begins; unset: without a
// tokenizer.
std::vector<size_t> TextOffsets(std::span<const TokenId> tokens,
                                std::string_view text, size_t base,
                                std::optional<IncrementalDetokenizer> begin);

// One of the lists that log-probabilities are: `begin`, then an item for each
// token. After the last list comes "}".
struct LogProbList {
  std::string_view begin;
  void (*append)(const PlacedLogProb& token, const TokenNames& names,
                 std::string* out);
};
std::span<const LogProbList> LogProbListsOf(const Call& call);

void AppendLogProbs(const Call& call, std::span<const PlacedLogProb> tokens,
                    const TokenNames& names, std::string* out);

// [null, {"token id": {"logprob", "rank", "decoded_token"}, ...}, ...], as vLLM
// has those of a prompt. They are of its last tokens: those before them, at
// least the first, have null.
void AppendPromptLogProbs(std::span<const TokenLogProb> log_probs,
                          int64_t num_prompt_tokens, const TokenNames& names,
                          std::string* out);
// One of its objects.
void AppendPromptLogProb(const TokenLogProb& log_prob, const TokenNames& names,
                         std::string* out);

}  // namespace espalier::openai
