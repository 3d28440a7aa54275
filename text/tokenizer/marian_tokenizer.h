// MarianTokenizer: the tokenizer of a Marian model as transformers writes it.
// Two SentencePiece models cut texts into pieces: source.spm those that are
// translated, target.spm translations. vocab.json numbers the pieces of both; a
// piece that it lacks is the unknown token. tokenizer_config.json may name the
// tokens that have a role. Tokens and texts are those of transformers'
// MarianTokenizer with split_special_tokens and without sacremoses.
//
// A text that begins with ">>", and has "<<" somewhere after, begins with a
// token of its own, up to there: the language to translate into.
//
// Decoded texts have no spaces at either end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/piece_matcher.h"
#include "text/pipeline/vocabulary.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class MarianTokenizer : public Tokenizer {
 public:
  // Reads source.spm, target.spm, vocab.json and, if they are there,
  // tokenizer_config.json and, unless that has added_tokens_decoder,
  // special_tokens_map.json and added_tokens.json in `directory`. None need be
  // trusted.
  // Errors: as ReadFile; kInvalidArgument naming the file and what is wrong
  // with it, or the field that asks for what is not supported: vocabularies of
  // source and target that differ (separate_vocabs), sampling
  // (sp_model_kwargs), and further added tokens.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& directory);

  ~MarianTokenizer() override;

  std::optional<TokenId> PieceToId(std::string_view piece) const override;
  std::string Piece(TokenId token) const override;

 private:
  struct Files {
    std::unique_ptr<SentencePieceTokenizer> source;
    std::unique_ptr<SentencePieceTokenizer> target;
    Vocabulary vocabulary;
  };
  MarianTokenizer(Files files, Parts parts);

  // With parse_special each text between special tokens is encoded by itself,
  // and may begin with a language.
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special) const override;
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special, int max_tokens) const override;
  // By target.spm.
  absl::StatusOr<std::vector<TokenId>> EncodeOutputText(
      std::string_view text) const override;
  // Appends the tokens of a text without special tokens.
  absl::Status EncodePlain(const SentencePieceTokenizer& pieces,
                           std::string_view text, int max_tokens,
                           std::vector<TokenId>* tokens) const;
  absl::StatusOr<std::string> DecodeText(
      const std::vector<TokenId>& tokens) const override;

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
