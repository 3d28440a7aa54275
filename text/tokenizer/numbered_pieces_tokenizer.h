// NumberedPiecesTokenizer: SentencePiece models cut texts into pieces, and a
// table numbers the pieces; a piece that it lacks is the unknown token. Marian
// (text/tokenizer/marian_tokenizer.h) has two models, M2M100
// (text/tokenizer/m2m100_tokenizer.h) one.
//
// A text for a Marian may name the language to translate into: one that begins
// with ">>" and has "<<" somewhere after begins with a token of its own, up to
// there.
//
// Decoded texts have no spaces at either end.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/piece_matcher.h"
#include "text/pipeline/vocabulary.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class NumberedPiecesTokenizer : public Tokenizer {
 public:
  struct Files {
    std::unique_ptr<SentencePieceTokenizer> source;
    // Cuts what a model writes; null: `source` does.
    std::unique_ptr<SentencePieceTokenizer> target;
    Vocabulary vocabulary;
    bool has_marks = false;  // ">>fr<<" at the beginning of a text
  };
  using Tokenizer::Parts;

  // Reads a vocab.json: {"piece": id, ...}.
  // Errors: as ReadFile; kInvalidArgument naming the file and the entry.
  static absl::StatusOr<Vocabulary> LoadNumbers(const std::string& path);

  // Reads a shared_vocabulary.json of CTranslate2, ["piece", ...] by id, and
  // adds `last`, which CTranslate2 leaves out, unless the list has it.
  // Errors: as LoadNumbers.
  static absl::StatusOr<Vocabulary> LoadList(const std::string& path,
                                             std::string_view last);

  // Returns the spellings of all tokens but `special` ones, as `pieces` spells
  // them.
  static TokenSpellings Spell(const Vocabulary& vocabulary,
                              const SentencePieceTokenizer& pieces,
                              std::span<const TokenId> special);

  // REQUIRES: parts.special_tokens.unk is set.
  NumberedPiecesTokenizer(Files files, Parts parts);
  ~NumberedPiecesTokenizer() override;

  std::optional<TokenId> PieceToId(std::string_view piece) const override;
  std::string Piece(TokenId token) const override;

 private:
  // With parse_special each text between special tokens is encoded by itself,
  // and may begin with a language.
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special) const override;
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special, int max_tokens) const override;
  // By `target`.
  absl::StatusOr<std::vector<TokenId>> EncodeOutputText(
      std::string_view text) const override;
  // Appends the tokens of a text without special tokens.
  absl::Status EncodePlain(const SentencePieceTokenizer& pieces,
                           std::string_view text, int max_tokens,
                           std::vector<TokenId>* tokens) const;

  // Languages.
  bool IsAdded(TokenId token) const override;
  // They are recognised in any text still.
  void OnMarkedSpecial(std::span<const TokenId>) override {}

  TokenId IdOf(std::string_view piece) const;

  // Constant after construction.
  const Files files_;
  PieceMatcher specials_;
};

}  // namespace espalier
