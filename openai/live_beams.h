// LiveBeams: the state of a beam search as an event of a stream shows it.
//
// A beam's text is its parent's and what its new tokens add to it, so that a
// step decodes the tokens it added alone.
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

  // {"prompt", "sentence", "step", "beams": [{"text", "tokens", "score",
  // "cum_log_prob",
  //  "finish_reason"}, ...]}: what lives by rank, then what may still be
  // returned. Texts are what is certain of them. Events in any order give the
  // same texts; in the order of a search they cost least.
  void Append(int prompt, const BeamsEvent& event, std::string* out);

 private:
  // The text that is certain of some tokens, and what makes that of more.
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
  // Of all beams of the event, which becomes the one before.
  void GrowTexts(const BeamsEvent& event);
  GrowingText TextOf(const std::vector<TokenId>& tokens) const;

  // Constant after construction.
  const Tokenizer* tokenizer_;
  std::unique_ptr<const StopStrings> stops_;  // texts refer to them
  std::optional<TextStream> begin_;           // if there are texts

  Texts texts_;                    // of the event before, by their tokens
  size_t num_tokens_of_live_ = 0;  // each live beam's, in the event before
};

}  // namespace espalier::openai
