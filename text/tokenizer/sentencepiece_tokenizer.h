// SentencePieceTokenizer: the tokenizer of a SentencePiece model
// (tokenizer.model). The only door to that library: its statuses and
// exceptions become absl::Status here.
//
// Control symbols are special tokens, user-defined symbols added tokens
// (text/tokenizer/tokenizer.h). Runs of spaces count as one and outer spaces
// not at all, where the model was trained that way.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/piece_matcher.h"
#include "text/tokenizer/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}  // namespace sentencepiece

namespace espalier {

struct SentencePieceFacts;  // text/tokenizer/sentencepiece_check.h

class SentencePieceTokenizer : public Tokenizer {
 public:
  // Reads the model at `path`, of 64 MiB at most. The file need not be trusted
  // (text/tokenizer/sentencepiece_check.h).
  // Errors: as ReadFile; kInvalidArgument naming the file if it holds no
  // SentencePiece model, one that the library is not safe with, or one with
  // rules that change the text of several tokens together (denormalizer_spec).
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Load(
      const std::string& path);

  ~SentencePieceTokenizer() override;

  // Returns the pieces of a text, for another vocabulary to look up; a
  // character that no piece has becomes a piece.
  // REQUIRES: `text` is UTF-8.
  // Errors: as Encode with these max_tokens.
  absl::StatusOr<std::vector<std::string>> EncodeAsPieces(std::string_view text,
                                                          int max_tokens) const;

  // Adds how `piece` of another vocabulary is spelt: as the piece of this model
  // if it has it, else as text with spaces.
  void AddSpellingOf(std::string_view piece, TokenSpellings* table) const;

  std::optional<TokenId> PieceToId(std::string_view piece) const override;
  std::string Piece(TokenId token) const override;

 private:
  SentencePieceTokenizer(
      std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
      Parts parts, const SentencePieceFacts& facts);

  // With parse_special the texts between control symbols are encoded by
  // themselves, as if each opened a sentence.
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special) const override;

  // In time of what max_tokens can spell: the library takes a microsecond and
  // 240 bytes of memory a byte. Long runs of spaces cost a pass over them,
  // where the model takes no account of them. Also refused is a text of few
  // tokens if its bytes are a long run of characters that the vocabulary cannot
  // spell, which the library makes one unknown token, or that normalization
  // rules of the model drop beside spaces.
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special, int max_tokens) const override;

  // Returns the text to encode, which may be a copy in `*shortened`.
  // Errors: kOutOfRange if it is refused for its length.
  absl::StatusOr<std::string_view> CheckLength(std::string_view text,
                                               bool parse_special,
                                               int max_tokens,
                                               std::string* shortened) const;

  absl::StatusOr<std::vector<TokenId>> EncodePlain(std::string_view text) const;

  absl::StatusOr<std::string> DecodeText(
      const std::vector<TokenId>& tokens) const override;

  bool IsAdded(TokenId token) const override;
  // They are recognised in any text still.
  void OnMarkedSpecial(std::span<const TokenId>) override {}

  // `text`, or a copy in `*shortened` that encodes to the same tokens and has
  // no run of spaces of more than max_spaces_.
  std::string_view ShortenSpaces(std::string_view text,
                                 std::string* shortened) const;

  // Constant after construction.
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  PieceMatcher controls_;
  std::vector<std::string> user_defined_;  // ascending
  std::optional<size_t> max_spaces_;       // as SentencePieceFacts has it
};

}  // namespace espalier
