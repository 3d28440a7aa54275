// ChoicePart: what a whole answer, or an event of a stream, says of a choice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "openai/logprobs.h"
#include "openai/token_names.h"
#include "request/request.h"

namespace espalier::openai {

struct ChoicePart {
  int64_t index = 0;
  std::string_view text = {};
  std::span<const TokenId> tokens = {};
  // If the call asks for them.
  std::vector<PlacedLogProb> log_probs = {};
  // Set where the choice ends here: it, and its prompt.
  const Hypothesis* end = nullptr;
  const PromptParts* prompt = nullptr;
};

// Appends one part after the other.
class ChoiceWriter {
 public:
  // `call` and `tokenizer`, which may be null, outlive this.
  ChoiceWriter(const Call& call, const Tokenizer* tokenizer)
      : call_(call),
        tokenizer_(tokenizer),
        names_(tokenizer, call.tokens_as_ids) {}

  // As whole answers have it, or as events do; the last brace is left out, so
  // that more may follow.
  void AppendWhole(const ChoicePart& part, std::string* out) const;
  void AppendDelta(const ChoicePart& part, std::string* out) const;

  // What the log-probabilities of a hypothesis are at its places, those of the
  // prompt in front if it is echoed. They refer to `result` and `prompt`.
  std::vector<PlacedLogProb> LogProbsOf(const PromptParts& prompt,
                                        const Result& result,
                                        const Hypothesis& hypothesis,
                                        std::string_view text) const;

  // ,"prompt_token_ids":[...], if the call asks for them.
  void AppendPromptIds(const PromptParts& prompt, std::string* out) const;
  // ,"prompt_logprobs":[...], if the call asks for them.
  void AppendPromptLogProbs(const Result& result, std::string* out) const;

  const Tokenizer* tokenizer() const { return tokenizer_; }
  bool shows_text() const { return call_.shows_text; }
  bool prompt_only() const { return call_.prompt_only; }
  bool shows_tokens() const {
    return call_.api == Api::kTokens || call_.return_token_ids ||
           tokenizer_ == nullptr;
  }

 private:
  void AppendEnd(const ChoicePart& part, std::string* out) const;
  void AppendTokensAndLogProbs(const ChoicePart& part, std::string* out) const;

  const Call& call_;
  const Tokenizer* const tokenizer_;
  const TokenNames names_;
};

}  // namespace espalier::openai
