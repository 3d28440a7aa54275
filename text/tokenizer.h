// Tokenizer: text to token ids and back, by a SentencePiece model
// (tokenizer.model). The only door to that library: its statuses and
// exceptions become absl::Status here.
//
// Three kinds of vocabulary entries behave differently. Ordinary pieces (byte
// pieces among them) spell text. User-defined symbols (<en>, <fr>) spell
// themselves and are recognised wherever they stand in a text. Control symbols
// (<s>, </s>, <pad>) spell nothing and are never recognised in a text: a
// sentence cannot smuggle one in.
//
// A user-defined symbol may be text, a run of spaces or a line end, or a mark
// of the model's prompts; the model file does not say which. Those of its
// prompt templates are marks: special tokens (MarkSpecial), which spell nothing
// in what is generated, as transformers' skip_special_tokens leaves out control
// symbols and what its user declared special.
//
// Thread safety: constant after Load and MarkSpecial; any thread may then call
// any member.
//
//   ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(path));
//   ASSIGN_OR_RETURN(auto tokens, tokenizer->Encode("How old are you?"));
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "text/token_spellings.h"

namespace sentencepiece {
class SentencePieceProcessor;
}  // namespace sentencepiece

namespace espalier {

struct SentencePieceFacts;  // text/sentencepiece_check.h

class Tokenizer {
 public:
  // Reads the model at `path`, of 64 MiB at most. The file need not be trusted
  // (text/sentencepiece_check.h).
  // Errors: as ReadFile; kInvalidArgument naming the file if it holds no
  // SentencePiece model, one that the library is not safe with, or one with
  // rules that change the text of several tokens together (denormalizer_spec).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& path);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The pieces of `text` by itself: no BOS, no EOS. Runs of spaces count as
  // one and outer spaces not at all, where the model was trained that way.
  // Errors: kInvalidArgument if `text` is not UTF-8.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text) const;

  // The same of a text that may be far longer than `max_tokens`, in time of
  // what those can spell: the library takes a microsecond and 240 bytes of
  // memory a byte. Long runs of spaces cost a pass over them, where the model
  // takes no account of them. One that cannot have so few tokens is refused by
  // its bytes, Unicode's spaces aside, or by the tokens of its beginning;
  // another may still have more. So is one of few tokens if its bytes are a
  // long run of characters that the vocabulary cannot spell, which the library
  // makes one unknown token, or that normalization rules of the model drop
  // beside spaces. Errors: kOutOfRange with the figures; as Encode.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                              int max_tokens) const;

  // Makes the user-defined symbols among `tokens` special: they spell nothing
  // from now on, as if they were not there. Other tokens stay what they are.
  // REQUIRES: the tokenizer is not in use yet, and nor are its spellings.
  void MarkSpecial(std::span<const TokenId> tokens);

  // The text that `tokens` spell: UTF-8, bytes that make no character as
  // U+FFFD. Tokens are read as a whole text, so the space that opens the first
  // piece is dropped: the texts of two halves do not concatenate. Tokens of
  // vocab_size() or more spell nothing: models pad their vocabularies.
  // Errors: kInvalidArgument naming the first token that is negative.
  absl::StatusOr<std::string> Decode(std::span<const TokenId> tokens) const;

  // The entry spelled exactly `piece`, of any kind; nullopt if there is none.
  std::optional<TokenId> PieceToId(std::string_view piece) const;

  // What the vocabulary calls `token`: its piece, "▁" for a space, or its
  // symbol. Empty if there is no such entry.
  std::string Piece(TokenId token) const;

  // Encode's token ids are [0, vocab_size).
  int vocab_size() const;

  // Whether a model with a vocabulary of `model_vocab_size` knows all tokens of
  // this tokenizer; it may have more, as padding.
  // Errors: kInvalidArgument naming both sizes.
  absl::Status CheckFits(int model_vocab_size) const;

  // The symbol that begins a sequence; nullopt if the model has none.
  std::optional<TokenId> bos_id() const;

  // What each token adds to a text, for text/incremental_detokenizer.h.
  const TokenSpellings& spellings() const { return spellings_; }

 private:
  Tokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
            TokenSpellings spellings, const SentencePieceFacts& facts);

  // `text`, or a copy in `*shortened` that encodes to the same tokens and has
  // no run of spaces of more than max_spaces_.
  std::string_view ShortenSpaces(std::string_view text,
                                 std::string* shortened) const;

  // Constant after construction.
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  TokenSpellings spellings_;
  std::vector<std::string> user_defined_;  // ascending
  std::optional<size_t> max_spaces_;       // as SentencePieceFacts has it
};

}  // namespace espalier
