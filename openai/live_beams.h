// LiveBeams: the state of a beam search as an event of a stream shows it.
//
// A beam's text is its parent's text with its new tokens' appended, so that a
// step decodes only the new tokens.
//
// Thread safety: none of its own; one caller at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "openai/answer.h"
#include "request/stream_event.h"
#include "text/stop_strings.h"
#include "text/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

class LiveBeams {
 public:
  // `tokenizer` outlives this; null: there are no texts.
  LiveBeams(const PromptParts& prompt, const Tokenizer* tokenizer);

  // Appends {"prompt", "sentence", "step", "beams": [{"text", "tokens",
  // "score", "cum_log_prob", "finish_reason"}, ...]}: live beams by rank, then
  // the hypotheses that may still be returned. Texts contain no characters that
  // may still change. The order of events does not affect the texts; the order
  // of a search is the cheapest.
  void Append(int prompt, const BeamsEvent& event, std::string* out);

 private:
  // The final part of the text of some tokens, and the decoder state to extend
  // it.
  struct GrowingText {
    TextStream stream;
    std::string text;
  };
  struct TokensHash {
    size_t operator()(const std::vector<TokenId>& tokens) const;
  };
  using Texts =
      std::unordered_map<std::vector<TokenId>, GrowingText, TokensHash>;

  void AppendBeam(const BeamState& beam, std::string* out) const;
  // Computes the texts of all beams of the event; it becomes the previous one.
  void GrowTexts(const BeamsEvent& event);
  GrowingText TextOf(const std::vector<TokenId>& tokens) const;

  // Constant after construction.
  const Tokenizer* tokenizer_;
  std::unique_ptr<const StopStrings> stops_;  // texts refer to them
  std::optional<TextStream> begin_;           // if there are texts

  // Texts of the previous event, by tokens.
  Texts texts_;
  size_t num_tokens_of_live_ = 0;  // per live beam, in the previous event
};

}  // namespace espalier::openai
