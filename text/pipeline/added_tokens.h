// AddedTokens: the entries of a tokenizer.json that are found in a text as they
// stand ("added_tokens"), before anything cuts it into pieces: special tokens,
// marks, runs of spaces.
//
// Those with "normalized" are looked for in the normalized text, by what the
// normalizer makes of them. Where several match, the leftmost longest counts;
// one that is not wanted there (a special token in a user's text, a single word
// inside of another) leaves its characters to be text.
//
// Thread safety: constant after Create; any thread may then read.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/json.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/piece_matcher.h"

namespace espalier {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // only where no word character is next to it
  bool lstrip = false;       // takes the whitespace in front of it
  bool rstrip = false;       // takes the whitespace after it
  bool normalized = true;
  bool special = false;
  // `content` after the normalizer, if `normalized`.
  std::string normalized_content;

  std::string_view spelt() const {
    return normalized ? normalized_content : content;
  }
};

class AddedTokens {
 public:
  // The list `value` at `place` of a tokenizer.json; null is none.
  // Errors: kInvalidArgument naming the field and its value.
  static absl::StatusOr<AddedTokens> Read(const json::value& value,
                                          const std::string& place,
                                          const Normalizer& normalizer,
                                          RegexBudget* budget);

  // Ascending by id.
  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // nullptr if there is none.
  const AddedToken* Find(TokenId id) const;

  // Splits `text` at the normalized added tokens, or at the others.
  // is_wanted(id) selects the tokens to find; on_text(begin, end) receives each
  // non-empty stretch between them, on_token(id) each token. Both return a
  // status.
  template <typename IsWanted, typename OnText, typename OnToken>
  absl::Status Split(std::string_view text, bool normalized,
                     const IsWanted& is_wanted, const OnText& on_text,
                     const OnToken& on_token) const {
    const PieceMatcher& matcher = MatcherOf(normalized);
    size_t done = 0;
    size_t widened = 0;  // the end of the whitespace that was taken last
    for (size_t at = 0; at < text.size();) {
      const auto match = matcher.At(text, at);
      if (!match) {
        ++at;
        continue;
      }
      size_t begin = at, end = at + match->size;
      at = end;
      const AddedToken& token = *Find(match->token);
      if (!is_wanted(token.id) || !StandsAlone(token, text, begin, end)) {
        continue;
      }
      Widen(token, text, done, &begin, &end, &widened);
      // With lstrip it begins where the token before it ended: of what that one
      // took as whitespace nothing is left.
      if (token.lstrip && end <= done) continue;
      if (done < begin) {
        if (absl::Status s = on_text(done, begin); !s.ok()) return s;
      }
      if (absl::Status s = on_token(token.id); !s.ok()) return s;
      done = end;
    }
    if (done == text.size()) return absl::OkStatus();
    return on_text(done, text.size());
  }

 private:
  const PieceMatcher& MatcherOf(bool normalized) const {
    return normalized ? normalized_ : verbatim_;
  }
  static bool StandsAlone(const AddedToken& token, std::string_view text,
                          size_t begin, size_t end);
  // Takes whitespace, in front not before `done`. What lies between the end of
  // an earlier token and `widened` is whitespace and is not looked at again.
  static void Widen(const AddedToken& token, std::string_view text, size_t done,
                    size_t* begin, size_t* end, size_t* widened);

  std::vector<AddedToken> tokens_;
  PieceMatcher verbatim_;
  PieceMatcher normalized_;
};

}  // namespace espalier
