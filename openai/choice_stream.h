// ChoiceStream: the written and pending parts of one choice of a stream. The
// parts, concatenated, are the whole choice.
//
// Thread safety: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_log_prob.h"
#include "openai/choice.h"
#include "text/tokenizer/incremental_detokenizer.h"

namespace espalier::openai {

class ChoiceStream {
 public:
  // `writer` and `prompt` outlive this.
  ChoiceStream(int64_t index, const PromptParts* prompt,
               const ChoiceWriter* writer)
      : index_(index),
        prompt_(prompt),
        writer_(writer),
        tool_calls_(writer->ToolCallsOf(*prompt)) {}

  // The echoed prompt, in front of all.
  void AddPrompt(std::string_view text) {
    text_ += text;
    num_characters_ += CountCharacters(text);
  }
  // Adds new output from the engine.
  //   log_probs  [tokens], if the request asks for them, or none: then they
  //              are written with the end
  void Add(std::span<const TokenId> tokens, std::string_view text,
           std::span<const TokenLogProb> log_probs = {});

  // True if there is something to write: text, tool calls, or token ids if they
  // are shown.
  bool has_news() const;
  // Appends the pending part, without an end.
  void AppendNews(std::string* out);

  // Appends the rest: everything of `hypothesis` that was not written yet.
  //   text  of the whole choice, the echoed prompt included
  void AppendEnd(const Result& result, const Hypothesis& hypothesis,
                 std::string_view own_text, std::string_view text,
                 std::string* out);

  // All tokens that were added.
  std::span<const TokenId> tokens() const { return tokens_; }

 private:
  // Adds `text` of `tokens`, split into content and tool calls if these are
  // parsed.
  void AddText(std::span<const TokenId> tokens, std::string_view text,
               bool is_end);
  // Returns the log-probabilities that may be written with the text so far.
  std::vector<PlacedLogProb> ReadyLogProbs() const;

  const int64_t index_;
  const PromptParts* const prompt_;
  const ChoiceWriter* const writer_;
  // Set if tool calls are parsed: all text passes through it.
  std::optional<ToolCallStream> tool_calls_;
  std::vector<ToolCallPart> tool_call_parts_;  // to be written
  bool has_tool_calls_ = false;
  std::vector<TokenId> tokens_;
  size_t num_tokens_written_ = 0;
  std::string text_;  // to be written
  size_t num_bytes_written_ = 0;
  size_t num_characters_written_ = 0;
  // Pending log-probabilities, from token num_log_probs_written_ on.
  std::vector<TokenLogProb> log_probs_;
  std::vector<size_t> text_offsets_;
  size_t num_log_probs_written_ = 0;
  std::optional<IncrementalDetokenizer> detokenizer_;
  size_t num_characters_ = 0;  // in the prompt and the text of all tokens
};

}  // namespace espalier::openai
