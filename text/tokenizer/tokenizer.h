// Tokenizer: text to token ids and back, whatever kind the model's vocabulary
// is of. Seven kinds are known: the file of Hugging Face's tokenizers library
// (tokenizer.json), a SentencePiece model (tokenizer.model), the files of a
// GPT-2, BART or Qwen (merges.txt and vocab.json), all of them with what other
// files say of their tokens (text/tokenizer/directory_tokenizer.h), the files
// of a Marian model (source.spm and others, text/tokenizer/marian_tokenizer.h),
// the SentencePiece model of a T5 (spiece.model,
// text/tokenizer/t5_tokenizer.h), that of an M2M100 or an mBART
// (sentencepiece.bpe.model, text/tokenizer/m2m100_tokenizer.h,
// text/tokenizer/translator_steps.h), and the bytes of a ByT5, which has no
// vocabulary (tokenizer_config.json, text/tokenizer/byt5_tokenizer.h).
// docs/tokenizers.md says what of them is supported.
//
// Vocabulary entries behave in three ways. Ordinary pieces, single bytes among
// them, spell text. Added tokens (a SentencePiece model's user-defined symbols,
// such as <en>) spell themselves and are recognised wherever they stand in a
// text. Special tokens (<s>, </s>, <pad>, <|im_end|>) spell nothing in what is
// generated, and a text does not become one: no sentence can smuggle one in,
// unless its caller asks for that (EncodeOptions::parse_special).
//
// An added token may be text, a run of spaces or a line end, or a mark of the
// model's prompts; the model's files do not always say which. Those of its
// prompt templates are marks: special tokens (MarkSpecial), as transformers'
// skip_special_tokens leaves out what its user declared special. Those that are
// a SentencePiece model's user-defined symbols are the exception to the above:
// they spell nothing either, but are still recognised in any text.
//
// Thread safety: constant after Load, MarkSpecial and SetModelVocabSize; any
// thread may then call any member.
//
//   ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(path));
//   ASSIGN_OR_RETURN(auto tokens, tokenizer->Encode("How old are you?"));
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/unique_number.h"
#include "text/pipeline/piece_matcher.h"
#include "text/pipeline/token_spellings.h"
#include "text/tokenizer/languages.h"

namespace espalier {

struct EncodeOptions {
  // Adds before_text() and after_text() around the text's tokens.
  bool add_special_tokens = false;
  // Parses the spelling of a special token as that token. Never set this for
  // text from a user.
  bool parse_special = false;
  // A text of far more tokens is refused without the cost of its length.
  int max_tokens = std::numeric_limits<int>::max();
};

struct DecodeOptions {
  // Spells out special tokens by their names. They count as text: the space of
  // a token after one is kept.
  bool show_special = false;
};

// The tokens that have a role in any text; nullopt if the model has none.
struct SpecialTokens {
  std::optional<TokenId> bos;  // begins a sequence
  std::optional<TokenId> eos;  // ends it
  std::optional<TokenId> pad;
  std::optional<TokenId> unk;  // what no other token spells
};

class Tokenizer {
 public:
  // Reads the file at `path`: a tokenizer.json if its name ends so, with the
  // files beside it, else a SentencePiece model. It need not be trusted.
  // Errors: as ReadFile; kInvalidArgument naming the file and what is wrong
  // with it, of a tokenizer.json the field and its value.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& path);

  // The tokenizer of a model directory: of the first of kFiles that is there;
  // null if none is.
  // Errors: as Load; kNotFound naming the files of its kind that are missing;
  // kFailedPrecondition naming the file that cannot be looked at.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> LoadDirectory(
      const std::string& directory);

  static constexpr std::string_view kFiles[] = {
      "source.spm",   "tokenizer.json",          "tokenizer.model",
      "spiece.model", "sentencepiece.bpe.model", "merges.txt"};
  // Returns which of kFiles the directory has first, or tokenizer_config.json
  // of a ByT5, which has none of them; nullopt if neither.
  // Errors: kFailedPrecondition naming the file that cannot be looked at; as
  // IsByt5.
  static absl::StatusOr<std::optional<std::string_view>> FileOf(
      const std::string& directory);
  // All of them, for messages: "a, b or c".
  static std::string FileNames();

  virtual ~Tokenizer();

  // A number unique to this tokenizer, a key for derived values
  // (DerivedValues).
  int64_t number() const { return number_; }

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Encodes `text` by itself: no BOS and no EOS unless `options` say so.
  //
  // With `max_tokens`, a text that cannot have so few tokens is refused, judged
  // by its size or by the tokens of its beginning; an accepted text may still
  // have more.
  // Errors: kInvalidArgument if `text` is not UTF-8, or naming its first token
  // that the model lacks; kOutOfRange with the figures if it is refused for its
  // length.
  absl::StatusOr<std::vector<TokenId>> Encode(
      std::string_view text, const EncodeOptions& options = {}) const;

  // Returns the tokens with which a model would write `text`, if its output
  // vocabulary differs from its input. None of them is special.
  // Errors: kInvalidArgument as Encode.
  absl::StatusOr<std::vector<TokenId>> EncodeOutput(
      std::string_view text) const;

  // Makes the added tokens among `tokens` special: from now on they spell
  // nothing. Other tokens are unchanged.
  // REQUIRES: the tokenizer is not in use yet, and nor are its spellings.
  void MarkSpecial(std::span<const TokenId> tokens);

  // Makes Encode and EncodeOutput refuse texts with a token id beyond the
  // model's vocabulary: tokenizers contain tokens that their models were not
  // trained on.
  // REQUIRES: the tokenizer is not in use yet.
  void SetModelVocabSize(int model_vocab_size) {
    model_vocab_size_ = model_vocab_size;
  }

  // Returns the text that `tokens` spell: UTF-8, with U+FFFD for bytes that
  // form no character. Tokens are decoded as a whole text, so the space of its
  // first piece may be dropped: the texts of two halves do not concatenate.
  // Tokens of vocab_size() or more spell nothing: models pad their
  // vocabularies.
  // Errors: kInvalidArgument naming the first token that is negative.
  absl::StatusOr<std::string> Decode(std::span<const TokenId> tokens,
                                     const DecodeOptions& options = {}) const;

  // Returns the vocabulary's entry for exactly `piece`, of any kind; nullopt if
  // there is none.
  virtual std::optional<TokenId> PieceToId(std::string_view piece) const = 0;

  // Returns the vocabulary's piece of `token`, "▁the" or "Ġthe", or its symbol.
  // Empty if there is no such entry.
  virtual std::string Piece(TokenId token) const = 0;

  // Returns a readable spelling of `token`, for traces and tables: for a
  // SentencePiece model its piece, else its text, with bytes that form no
  // character as <0xE2>; for a special token its name. Empty if there is no
  // such entry.
  virtual std::string Spelling(TokenId token) const { return Piece(token); }

  // Encode's token ids are [0, vocab_size).
  int vocab_size() const { return spellings_.vocab_size(); }

  bool is_special(TokenId token) const;
  const SpecialTokens& special_tokens() const { return special_tokens_; }
  // The special tokens by their names; of those with one name the first. Made
  // by the first call.
  const PieceMatcher& special_names() const;
  std::optional<TokenId> bos_id() const { return special_tokens_.bos; }

  // Returns the first name of a special token in `text` that was encoded as
  // text: its token is not in `tokens`. Empty if there is none.
  std::string_view UnparsedSpecial(std::string_view text,
                                   std::span<const TokenId> tokens) const;

  // Tokens around a text that is a whole sequence, as in training: usually BOS
  // in front.
  const std::vector<TokenId>& before_text() const { return before_text_; }
  const std::vector<TokenId>& after_text() const { return after_text_; }

  // Languages of a multilingual translator; empty of others. before_text() and
  // after_text() are for src_lang of tokenizer_config.json, or else English,
  // and without a language where a direction is a target alone.
  const NaturalLanguages& languages() const { return languages_; }

  // Text of each token, for text/tokenizer/incremental_detokenizer.h.
  const TokenSpellings& spellings() const { return spellings_; }

 protected:
  struct Parts {
    TokenSpellings spellings;
    std::vector<TokenId> special;  // all of them
    SpecialTokens special_tokens;
    std::vector<TokenId> before_text;
    std::vector<TokenId> after_text;
    NaturalLanguages languages = {};
  };
  explicit Tokenizer(Parts parts);

  // REQUIRES: the tokenizer is not in use yet.
  void SetLanguages(NaturalLanguages languages) {
    languages_ = std::move(languages);
  }

  // Refuses a text if the tokens of a beginning far exceed `max_tokens`, in
  // time proportional to that limit. `remark` is about the text.
  // Errors: kOutOfRange with the figures; as EncodeText.
  absl::Status CheckBeginnings(std::string_view text, bool parse_special,
                               int max_tokens, std::string_view remark) const;

 private:
  // REQUIRES: `text` is UTF-8.
  // Errors: as Encode.
  virtual absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special) const = 0;
  virtual absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special, int max_tokens) const = 0;

  // REQUIRES: `text` is UTF-8.
  // Errors: as Encode.
  virtual absl::StatusOr<std::vector<TokenId>> EncodeOutputText(
      std::string_view text) const {
    return EncodeText(text, /*parse_special=*/false);
  }

  // As IncrementalDetokenizer spells them.
  // REQUIRES: every token is in [0, vocab_size) and is there.
  virtual absl::StatusOr<std::string> DecodeText(
      const std::vector<TokenId>& tokens) const;

  // Errors: kInvalidArgument naming the first token that the model lacks.
  absl::Status CheckModelHas(std::span<const TokenId> tokens) const;

  virtual bool IsAdded(TokenId token) const = 0;

  // `tokens` have become special.
  virtual void OnMarkedSpecial(std::span<const TokenId> tokens) = 0;

  const int64_t number_ = NewUniqueNumber();
  // Constant after Load, MarkSpecial and SetModelVocabSize.
  TokenSpellings spellings_;
  std::vector<TokenId> special_;  // ascending
  int model_vocab_size_ = std::numeric_limits<int>::max();
  const SpecialTokens special_tokens_;
  const std::vector<TokenId> before_text_;
  const std::vector<TokenId> after_text_;
  NaturalLanguages languages_;
  mutable std::once_flag names_flag_;
  mutable PieceMatcher special_names_;
};

}  // namespace espalier
