// NaturalLanguages: those that a multilingual translator has tokens for. A
// source text stands between tokens that say its language; the token of the
// target language is the first one that the decoder is forced to write. Rules
// are those of transformers' tokenizers (src_lang, and
// _build_translation_inputs).
//
//   NLLB, M2M100, mBART-50       [source] X </s>
//   mBART-cc25, NLLB's legacy    X </s> [source]
//   SMaLL-100, MADLAD-400        [target] X </s>, and nothing is forced: they
//                                know the source language by the text
//
// Thread safety: constant after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace espalier {

struct NaturalLanguage {
  std::string code;  // "eng_Latn", "en", "en_XX", "zh_Hant"
  TokenId token = 0;
};

// Place of the language's token in a source.
enum class LanguageMark : uint8_t {
  kSourceFirst,
  kSourceLast,
  kTargetFirst,
};

// Tokens of a translation direction.
struct Direction {
  std::vector<TokenId> before_text = {};
  std::vector<TokenId> after_text = {};
  std::optional<TokenId> first_output = std::nullopt;  // forced
};

// The languages of a vocabulary, as the tokenizer's class knows them.
struct LanguageRule {
  LanguageMark mark = LanguageMark::kSourceFirst;
  // Returns the code of the token's language; empty if it stands for none.
  std::string_view (*code_of)(std::string_view token) = nullptr;
  std::string source = {};     // if a request names none
  std::string source_in = {};  // the file that names it; empty: none does
};

class NaturalLanguages {
 public:
  NaturalLanguages() = default;  // none
  //   eos  ends a source
  NaturalLanguages(LanguageMark mark, std::vector<NaturalLanguage> languages,
                   TokenId eos)
      : NaturalLanguages(mark, std::move(languages),
                         Direction{.after_text = {eos}}) {}
  //   around  tokens around every source, outside those of languages
  NaturalLanguages(LanguageMark mark, std::vector<NaturalLanguage> languages,
                   Direction around)
      : mark_(mark),
        languages_(std::move(languages)),
        around_(std::move(around)) {}

  bool empty() const { return languages_.empty(); }
  // True if a direction is a pair of languages, false if it is a target alone.
  bool takes_source() const { return mark_ != LanguageMark::kTargetFirst; }
  const std::vector<NaturalLanguage>& all() const { return languages_; }

  // Returns the language of this code, of this code of ISO 639 or of this
  // English name; case does not matter. The pointer lives as long as this
  // object.
  // Errors: kNotFound listing the languages, the closest first; or those that
  // the name may mean.
  absl::StatusOr<const NaturalLanguage*> Find(std::string_view name) const;

  // Returns the language of exactly this code; null if there is none.
  const NaturalLanguage* WithCode(std::string_view code) const;

  // Returns the tokens for one of `all()` to another. `source` is null exactly
  // if there is none to take.
  Direction Between(const NaturalLanguage* source,
                    const NaturalLanguage& target) const;

  // Returns those of a source of unknown target; null: of an unknown source.
  Direction Of(const NaturalLanguage* source) const;

  // Returns those of the rule's source, without its token if no file names it
  // and the vocabulary lacks it.
  // Errors: kInvalidArgument naming the file and the language.
  absl::StatusOr<Direction> DefaultOf(const LanguageRule& rule) const;

 private:
  LanguageMark mark_ = LanguageMark::kSourceFirst;
  std::vector<NaturalLanguage> languages_;
  Direction around_;
};

}  // namespace espalier
