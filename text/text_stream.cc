#include "text/text_stream.h"

#include <optional>

namespace espalier {

TextStream::TextStream(const Tokenizer& tokenizer, const StopStrings& stops,
                       const TextOptions& options)
    : detokenizer_(tokenizer, options.is_opening),
      matcher_(stops, options.include_stop),
      num_unmatched_tokens_(options.min_new_tokens) {}

TextPiece TextStream::Feed(TokenId token) {
  if (stopped()) return {};
  std::string text;
  detokenizer_.Feed(token, &text);
  TextPiece piece = Match(text);
  if (num_unmatched_tokens_ > 0) --num_unmatched_tokens_;
  return piece;
}

TextPiece TextStream::Finish() {
  if (stopped()) return {};
  std::string rest;
  detokenizer_.Finish(&rest);
  TextPiece piece = Match(rest);
  piece.text += matcher_.Finish();
  return piece;
}

TextPiece TextStream::Match(std::string_view text) {
  if (num_unmatched_tokens_ <= 0) return matcher_.Feed(text);
  return {matcher_.FeedUnmatched(text), std::nullopt, text.size()};
}

std::string TextOf(std::span<const TokenId> tokens, const Tokenizer& tokenizer,
                   const StopStrings& stops, const TextOptions& options) {
  TextStream stream(tokenizer, stops, options);
  std::string text;
  for (const TokenId token : tokens) {
    text += stream.Feed(token).text;
    if (stream.stopped()) break;
  }
  return text + stream.Finish().text;
}

}  // namespace espalier
