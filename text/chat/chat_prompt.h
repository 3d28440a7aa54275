// The tokens of a rendered chat.
//
// Special tokens come from the template alone: a special token's name in the
// rendering becomes that token if every byte of it was written by the template,
// the model's special tokens among it (jinja::Text marks the bytes). Where a
// byte of it is of an input, be it the whole name in what a user says or a half
// that the template completes, the name is text and is encoded as such. Added
// tokens that are not special, user-defined symbols of a SentencePiece model
// among them, are found in all text alike, as in the tokenizer's own Encode;
// and text that the vocabulary cannot spell becomes its unknown token, wherever
// it stands.
//
// A rendering whose inputs hold no such name gives the tokens that transformers
// gives. In one with such a name the texts between special tokens are encoded
// each by itself.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "text/jinja/text.h"
#include "text/pipeline/piece_matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// The special tokens of a tokenizer by their names, looked for in texts.
//
// Thread safety: constant after construction; any thread may then call.
class SpecialTokenNames {
 public:
  // `tokenizer` outlives this.
  explicit SpecialTokenNames(const Tokenizer& tokenizer)
      : names_(&tokenizer.special_names()) {}

  struct Match {
    size_t begin = 0;  // a byte
    size_t size = 0;   // 0: none
    TokenId token = 0;
  };
  // The first name in `text` from `begin` on, and of those that begin there the
  // longest.
  Match Find(std::string_view text, size_t begin) const;
  // Returns the names in the parts of `text` that the template wrote, in order.
  std::vector<Match> FindInTemplate(const jinja::Text& text) const;
  // True if any byte of a name comes from an input.
  bool AnyTouchesInput(const jinja::Text& text) const;

 private:
  const PieceMatcher* names_;
};

// Encodes a rendered chat. The only BOS and EOS are those that the template
// writes. A text of far more than `max_tokens` is refused without encoding all
// of it.
// Errors: as Tokenizer::Encode; kInvalidArgument if there is no token at all.
absl::StatusOr<std::vector<TokenId>> EncodeChat(
    const jinja::Text& text, const Tokenizer& tokenizer,
    const SpecialTokenNames& names,
    int max_tokens = std::numeric_limits<int>::max());
// As above, but looks up the names of `tokenizer` first, for occasional use.
// For many prompts, share a SpecialTokenNames.
absl::StatusOr<std::vector<TokenId>> EncodeChat(
    const jinja::Text& text, const Tokenizer& tokenizer,
    int max_tokens = std::numeric_limits<int>::max());

}  // namespace espalier
