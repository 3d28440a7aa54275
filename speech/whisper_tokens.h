// WhisperTokens: the tokens by which Whisper's decoder is told what to write,
// and says when a text was spoken. A vocabulary has, after those of text,
//
//   <|endoftext|> <|startoftranscript|> <|en|> ... <|translate|> <|transcribe|>
//   <|startoflm|> <|startofprev|> <|nospeech|> <|notimestamps|>
//   <|0.00|> <|0.02|> ... <|30.00|>
//
// Their ids depend on the number of languages, so they are looked up by name.
// Older files have <|nocaptions|> for <|nospeech|> and no entries for times,
// whose ids are known by arithmetic: a time is never text.
//
// Thread safety: constant after construction.
// Source: openai/whisper, whisper/tokenizer.py and decoding.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "speech/speech_task.h"
#include "text/tokenizer/languages.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// The content of a decoder's prompt.
struct WhisperPrompt {
  // Text that came before, or words to expect; its end is kept if it is longer
  // than half of the decoder's positions less one, or than what the rest
  // leaves.
  std::span<const TokenId> previous = {};
  // Its code is of one of the model's languages(); null for an English model
  // alone.
  const NaturalLanguage* language = nullptr;
  SpeechTask task = SpeechTask::kTranscribe;
  bool has_timestamps = true;
  // The beginning of the text. With timestamps <|0.00|> comes before it, so
  // that it is the text of a segment; openai's decoding.py puts no time there.
  std::span<const TokenId> prefix = {};
};

class WhisperTokens {
 public:
  // Times are 20 ms apart, and a window of audio has 30 s.
  static constexpr int kTimesPerSecond = 50;
  static constexpr int kNumTimes = 1501;

  // Finds them in a tokenizer. The vocabularies of English models have the
  // languages, too, which these do not understand: generation_config.json says
  // `is_multilingual`.
  // Errors: kInvalidArgument naming the token that is not there, or not where
  // it is in all vocabularies.
  static absl::StatusOr<WhisperTokens> Find(const Tokenizer& tokenizer,
                                            bool is_multilingual);

  TokenId end() const { return end_; }
  TokenId start() const { return start_; }
  TokenId translate() const { return translate_; }
  TokenId transcribe() const { return translate_ + 1; }
  TokenId start_of_lm() const { return translate_ + 2; }
  TokenId start_of_previous() const { return translate_ + 3; }
  TokenId no_speech() const { return translate_ + 4; }
  TokenId no_timestamps() const { return translate_ + 5; }
  TokenId first_time() const { return translate_ + 6; }

  // Empty if the model is English.
  const NaturalLanguages& languages() const { return languages_; }
  bool is_multilingual() const { return !languages_.empty(); }

  bool IsTime(TokenId token) const {
    return token >= first_time() && token < first_time() + kNumTimes;
  }
  // Tokens that spell text: those before end().
  bool IsText(TokenId token) const { return token >= 0 && token < end_; }
  // Returns how many steps of 1 / kTimesPerSecond s from a window's beginning.
  // REQUIRES: IsTime(token).
  int StepOf(TokenId time) const { return time - first_time(); }
  // REQUIRES: 0 <= step < kNumTimes.
  TokenId TimeOf(int step) const { return first_time() + step; }

  // Returns the tokens of symbols that are not spoken, such as brackets and
  // notes, and those that a text never has: what openai's suppress_tokens -1
  // stands for. Ascending.
  // Errors: as Tokenizer::Encode.
  absl::StatusOr<std::vector<TokenId>> NotSpoken(
      const Tokenizer& tokenizer) const;

  // Returns the tokens that a text does not begin with, of its blank and its
  // end. Ascending.
  // Errors: as Tokenizer::Encode.
  absl::StatusOr<std::vector<TokenId>> NotAtBegin(
      const Tokenizer& tokenizer) const;

  // Returns the decoder's tokens before the text that it is to write, fewer
  // than its `max_context` positions. REQUIRES: max_context >= 8. Errors:
  // kInvalidArgument if the language is missing or not the model's, the task is
  // one that an English model does not know, or previous and prefix have tokens
  // that are not text or times, or prefix is longer than half of the positions
  // less one.
  absl::StatusOr<std::vector<TokenId>> PromptOf(const WhisperPrompt& prompt,
                                                int max_context) const;

 private:
  WhisperTokens() = default;

  TokenId end_ = 0;
  TokenId start_ = 0;
  TokenId translate_ = 0;
  NaturalLanguages languages_;
};

}  // namespace espalier
