// TextStream: the text of one sample or beam while it is generated, from its
// tokens to where a stop string ends it. A client is sent the pieces; a
// strategy copies the parent's stream, feeds the candidate's token and sees
// whether that completes a stop; TextOf gives the text when all is over.
//
// Invariant: the pieces, concatenated, equal TextOf of the same tokens, which
// is Tokenizer::Decode cut at the stop that ends first in it
// (text/tokenizer/incremental_detokenizer.h, text/stop_strings.h). Only
// generated tokens are fed: a stop that lies or begins in the prompt does not
// count. If the tokens continue others, the text is what they add to the
// others' text. Stops match special tokens by name, though texts do not show
// them (MakeStops).
//
// A value of five words that the compiler copies: a beam forks it by copying.
// To copy it and feed a token takes 40 ns, with or without stops: 80 us for the
// 2,000 candidates of 1,000 beams. To decode texts of 40 tokens again instead
// takes 12 us each (bin/text_stream_benchmark, one core of an AMD EPYC at
// 2.6 GHz).
// Thread safety: none of its own; the tokenizer and the stops may be shared.
//
//   TextStream stream(*tokenizer, stops);
//   for (const TokenId token : tokens) {
//     const TextPiece piece = stream.Feed(token);
//     Send(piece.text);
//     if (piece.stop_idx) break;
//   }
//   Send(stream.Finish().text);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/stop_strings.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct TextOptions {
  // Ends the text after the stop, not before it.
  bool include_stop = false;
  // No stop ends in the text of the first min_new_tokens tokens.
  int64_t min_new_tokens = 0;
};

// The automaton of `stops`, which StopStrings::Check takes: it finds the names
// of special tokens in stops as text and as these tokens.
StopStrings MakeStops(std::vector<std::string> stops,
                      const Tokenizer& tokenizer);

class TextStream {
 public:
  // Before the first token. The tokenizer and `stops` must outlive this and its
  // copies, at their places.
  //   begin  after the tokens that these continue, if there are any
  TextStream(const IncrementalDetokenizer& begin, const StopStrings& stops,
             const TextOptions& options = {});
  TextStream(const Tokenizer& tokenizer, const StopStrings& stops,
             const TextOptions& options = {})
      : TextStream(IncrementalDetokenizer(tokenizer), stops, options) {}

  // Returns the text that is certain with `token`, and the stop if it completes
  // one. After a stop nothing is released. Tokens outside the vocabulary add no
  // text, but count.
  TextPiece Feed(TokenId token);

  // Returns the rest, when no token follows; it may complete a stop, too.
  TextPiece Finish();

  bool stopped() const { return matcher_.stopped(); }

 private:
  TextPiece Match(std::string_view text);

  IncrementalDetokenizer detokenizer_;
  StopMatcher matcher_;
  int num_unmatched_tokens_;  // still to come; saturated
  bool marks_special_;
};

// Returns the text of all `tokens`, cut at the first stop.
std::string TextOf(std::span<const TokenId> tokens,
                   const IncrementalDetokenizer& begin,
                   const StopStrings& stops, const TextOptions& options = {});
inline std::string TextOf(std::span<const TokenId> tokens,
                          const Tokenizer& tokenizer, const StopStrings& stops,
                          const TextOptions& options = {}) {
  return TextOf(tokens, IncrementalDetokenizer(tokenizer), stops, options);
}

}  // namespace espalier
