// ChoicePart: the contents of a choice in a whole answer or in one event.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openai/answer.h"
#include "openai/call.h"
#include "openai/logprobs.h"
#include "openai/token_names.h"
#include "openai/tool_calls.h"
#include "request/request.h"

namespace espalier::openai {

struct ChoicePart {
  int64_t index = 0;
  std::string_view text = {};
  // Tool calls, or their next parts; and whether the choice has had any.
  std::span<const ToolCallPart> tool_calls = {};
  bool has_tool_calls = false;
  std::span<const TokenId> tokens = {};
  // Empty unless the call asks for them.
  std::vector<PlacedLogProb> log_probs = {};
  // Set if the choice ends here: its hypothesis and its prompt.
  const Hypothesis* end = nullptr;
  const PromptParts* prompt = nullptr;
};

// Appends parts of choices to an answer.
class ChoiceWriter {
 public:
  // All of them outlive this; `tokenizer` may be null.
  ChoiceWriter(const Call& call, const AnswerHead& head,
               const Tokenizer* tokenizer)
      : call_(call),
        head_(head),
        tokenizer_(tokenizer),
        names_(tokenizer, call.tokens_as_ids) {}

  // Appends the first members of a choice as in a whole answer, up to the value
  // of "logprobs". The caller appends that value, then calls AppendEnd.
  void AppendWholeBegin(const ChoicePart& part, std::string* out) const;
  // Appends the finish reason, if it ends; the last brace is left out, so that
  // more members may follow.
  void AppendEnd(const ChoicePart& part, std::string* out) const;
  // Appends a choice as in an event, up to and including "logprobs".
  void AppendDelta(const ChoicePart& part, std::string* out) const;

  // Returns the log-probabilities of a hypothesis by position, after the
  // prompt's if it is echoed. They refer to `result` and `prompt`.
  std::vector<PlacedLogProb> LogProbsOf(const PromptParts& prompt,
                                        const Result& result,
                                        const Hypothesis& hypothesis,
                                        std::string_view text) const;

  // ,"prompt_token_ids":[...], if the call asks for them.
  void AppendPromptIds(const PromptParts& prompt, std::string* out) const;
  // ,"prompt_logprobs":[...], if the call asks for them.
  void AppendPromptLogProbs(const Result& result, std::string* out) const;

  // Returns a reader of the tool calls in a choice; nullopt if the call has
  // none.
  std::optional<ToolCallStream> ToolCallsOf(const PromptParts& prompt) const {
    return openai::ToolCallsOf(call_, prompt, tokenizer_);
  }
  void DropUnwanted(ToolCallText* found) const {
    openai::DropUnwanted(call_, found);
  }

  const Tokenizer* tokenizer() const { return tokenizer_; }
  const TokenNames& names() const { return names_; }
  bool shows_text() const { return call_.shows_text; }
  bool prompt_only() const { return call_.prompt_only; }
  bool shows_tokens() const {
    return call_.api == Api::kTokens || call_.return_token_ids ||
           tokenizer_ == nullptr;
  }

 private:
  // The tokens, if they are shown, and the name of what comes next.
  void AppendTokens(const ChoicePart& part, std::string* out) const;

  const Call& call_;
  const AnswerHead& head_;
  const Tokenizer* const tokenizer_;
  const TokenNames names_;
};

}  // namespace espalier::openai
