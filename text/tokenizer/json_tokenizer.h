// JsonTokenizer: the tokenizer that a tokenizer.json of Hugging Face's library
// describes. docs/tokenizers.md lists the supported features. A file with
// another feature is refused, and the error names the feature. Token ids equal
// those of that library.
//
// A text goes through these steps, in files of text/pipeline/:
//
//   added tokens    found in the text as it is         added_tokens.h
//   normalizer      text to text                       normalizer.h
//   added tokens    found in the normalized text       added_tokens.h
//   pre-tokenizer   text to pieces                     pre_tokenizer.h
//   model           a piece to tokens                  bpe.h or unigram.h
//   post-processor  tokens before and after the text   post_processor.h
//
// The decoder does the reverse, a token at a time
// (text/pipeline/token_decoder.h). "truncation" and "padding" are ignored: the
// model limits the length of a prompt.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "text/pipeline/added_tokens.h"
#include "text/pipeline/normalizer.h"
#include "text/pipeline/piece_cache.h"
#include "text/pipeline/pre_tokenizer.h"
#include "text/pipeline/subword_model_file.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {

class JsonTokenizer : public Tokenizer {
 public:
  // Parses a file's content, which need not be trusted. Errors of encoding name
  // `path`, unless it is empty; errors about the length of a text do not. Texts
  // over 1 GiB are refused.
  // Errors: kInvalidArgument naming the field and its value.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(
      std::string_view text, const TokenizerConfig& config,
      const std::string& path = "");

  // Makes the tokenizer of a file from its object. `num_bytes` is the size of
  // the file, which limits the steps of its regular expressions (RegexBudget).
  // Errors: as Parse.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Make(
      const json::value& file, size_t num_bytes, const TokenizerConfig& config,
      const std::string& path);

  ~JsonTokenizer() override;

  std::optional<TokenId> PieceToId(std::string_view piece) const override;
  std::string Piece(TokenId token) const override;
  std::string Spelling(TokenId token) const override;

 private:
  // Parts of the file that Tokenizer does not hold.
  struct Steps {
    std::string path;
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    SubwordModelFile subwords;
    AddedTokens added;
  };

  // The memory of one call, kept for the next ones.
  struct Worker {
    PreTokenizer::Pieces pieces;
    SubwordScratch scratch;
    PieceCache cache;
  };

  JsonTokenizer(Parts parts, Steps steps);

  // Sets the languages of a rule of a target alone: pieces of any kind that a
  // text with their spelling becomes.
  void FindTargets(const LanguageRule& rule);

  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special) const override;
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool parse_special, int max_tokens) const override;
  bool IsAdded(TokenId token) const override;
  void OnMarkedSpecial(std::span<const TokenId> tokens) override;

  absl::Status EncodeInto(std::string_view text, bool parse_special,
                          Worker* worker, std::vector<TokenId>* tokens) const;
  absl::Status EncodeNormalized(std::string_view text, bool is_beginning,
                                bool parse_special, Worker* worker,
                                std::vector<TokenId>* tokens) const;
  absl::Status EncodePieces(Worker* worker, std::vector<TokenId>* tokens) const;
  absl::Status EncodePiece(std::string_view piece, Worker* worker,
                           std::vector<TokenId>* tokens) const;

  std::unique_ptr<Worker> TakeWorker() const;
  void GiveBack(std::unique_ptr<Worker> worker) const;

  // Constant after construction and OnMarkedSpecial.
  const Steps steps_;
  PieceIndex added_by_content_;

  // Idle workers: as many as calls ran concurrently, at most kMaxIdle.
  static constexpr size_t kMaxIdle = 16;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Worker>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace espalier
