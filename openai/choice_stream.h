// ChoiceStream: what a stream has written of one choice, and what it has to
// write of it next. Parts one after the other are the whole choice.
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
  // What the engine reports of it.
  //   log_probs  [tokens], if the request asks for them, or none: then they
  //              are written with the end
  void Add(std::span<const TokenId> tokens, std::string_view text,
           std::span<const TokenLogProb> log_probs = {});

  // Whether there is something to write: text, calls of tools, or token ids if
  // they are shown.
  bool has_news() const;
  // Appends that part, which ends nothing.
  void AppendNews(std::string* out);

  // Appends the rest, what `hypothesis` has and was not written yet.
  //   text  of the whole choice, the echoed prompt included
  void AppendEnd(const Result& result, const Hypothesis& hypothesis,
                 std::string_view own_text, std::string_view text,
                 std::string* out);

  // All that was added.
  std::span<const TokenId> tokens() const { return tokens_; }

 private:
  // `text` of `tokens`, or what content and calls of tools it is.
  void AddText(std::span<const TokenId> tokens, std::string_view text,
               bool is_end);
  // Those that may be written with the text so far.
  std::vector<PlacedLogProb> ReadyLogProbs() const;

  const int64_t index_;
  const PromptParts* const prompt_;
  const ChoiceWriter* const writer_;
  // Set where calls of tools are looked for: text passes through it.
  std::optional<ToolCallStream> tool_calls_;
  std::vector<ToolCallPart> tool_call_parts_;  // to be written
  bool has_tool_calls_ = false;
  std::vector<TokenId> tokens_;
  size_t num_tokens_written_ = 0;
  std::string text_;  // to be written
  size_t num_bytes_written_ = 0;
  size_t num_characters_written_ = 0;
  // To be written: of the tokens from num_log_probs_written_ on.
  std::vector<TokenLogProb> log_probs_;
  std::vector<size_t> text_offsets_;
  size_t num_log_probs_written_ = 0;
  std::optional<IncrementalDetokenizer> detokenizer_;
  size_t num_characters_ = 0;  // of the prompt and what all tokens spell
};

}  // namespace espalier::openai
