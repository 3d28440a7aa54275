// Vocabularies, steps and languages of transformers' tokenizers of multilingual
// translators: NllbTokenizer, MBartTokenizer and MBart50Tokenizer. M2M100's is
// in text/tokenizer/m2m100_tokenizer.h; MADLAD's is T5Tokenizer, and only its
// languages are here.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "text/tokenizer/languages.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/token_settings.h"
#include "text/tokenizer/tokenizer_class.h"

namespace espalier {

// True for the classes of this file.
bool IsTranslator(TokenizerClass tokenizer_class);

// Puts the steps of the class around the vocabulary of a tokenizer.json, and
// its tokens among the settings. A file of another kind of vocabulary stays as
// it is.
void TakeTranslatorSteps(TokenizerClass tokenizer_class,
                         TokenSettings* settings, json::object* file);

// Returns the tokenizer.json that the class makes of the
// sentencepiece.bpe.model at `path`, where <s>, <pad>, </s> and <unk> come
// first, then the pieces, then languages. Errors: kInvalidArgument naming the
// file, of NLLB, whose class finds no languages there, and of models whose
// first pieces are others.
absl::StatusOr<json::object> TranslatorFileOf(const SentencePieceModel& model,
                                              const std::string& path,
                                              TokenizerClass tokenizer_class,
                                              TokenSettings* settings);

// Errors: kInvalidArgument naming the file and its field src_lang or
// legacy_behaviour.
absl::StatusOr<LanguageRule> LanguageRuleOf(TokenizerClass tokenizer_class,
                                            const TokenSettings& settings);

// The rule of MADLAD-400, whose languages are the pieces <2fr>, <2zh_Hant> and
// so on of a T5's vocabulary. Pieces of scripts (<2Latn>), regions (<2CA>) and
// tasks (<2translate>) are no languages.
LanguageRule MadladRule();

// Sets the source of a rule to src_lang, or else to `otherwise`.
// Errors: as LanguageRuleOf.
absl::Status SetSource(const TokenSettings& settings, const char* otherwise,
                       LanguageRule* rule);

}  // namespace espalier
