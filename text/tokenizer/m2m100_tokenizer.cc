#include "text/tokenizer/m2m100_tokenizer.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/class_steps.h"
#include "text/tokenizer/languages.h"
#include "text/tokenizer/numbered_pieces_tokenizer.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"
#include "text/tokenizer/token_settings.h"
#include "text/tokenizer/tokenizer_class.h"
#include "text/tokenizer/translator_steps.h"

namespace espalier {
namespace {

constexpr std::string_view kM2m100Codes[] = {
    "af",  "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca",
    "ceb", "cs", "cy", "da",  "de", "el", "en", "es", "et", "fa", "ff", "fi",
    "fr",  "fy", "ga", "gd",  "gl", "gu", "ha", "he", "hi", "hr", "ht", "hu",
    "hy",  "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn",
    "ko",  "lb", "lg", "ln",  "lo", "lt", "lv", "mg", "mk", "ml", "mn", "mr",
    "ms",  "my", "ne", "nl",  "no", "ns", "oc", "or", "pa", "pl", "ps", "pt",
    "ro",  "ru", "sd", "si",  "sk", "sl", "so", "sq", "sr", "ss", "su", "sv",
    "sw",  "ta", "th", "tl",  "tn", "tr", "uk", "ur", "uz", "vi", "wo", "xh",
    "yi",  "yo", "zh", "zu"};
constexpr std::string_view kWmt21Codes[] = {"en", "ha", "is", "ja",
                                            "cs", "ru", "zh", "de"};

// Roles that a text may have among its tokens.
constexpr const char* kRoles[] = {"bos_token", "eos_token", "sep_token",
                                  "unk_token", "pad_token"};

absl::StatusOr<std::span<const std::string_view>> CodesOf(
    const TokenizerConfigFile& config) {
  const json::value* const list = config.Find("language_codes");
  if (list == nullptr || list->is_null() || *list == "m2m100") {
    return std::span<const std::string_view>(kM2m100Codes);
  }
  if (*list == "wmt21") return std::span<const std::string_view>(kWmt21Codes);
  return InvalidArgument(config.path(),
                         ": language_codes must be m2m100 or wmt21, got ",
                         Shown(list));
}

// Returns the place of language tokens that the class has.
absl::StatusOr<LanguageMark> MarkOf(const std::string& directory,
                                    const TokenizerConfigFile& config) {
  const json::value* const name = config.Find("tokenizer_class");
  if (name != nullptr && *name == "SMALL100Tokenizer") {
    return LanguageMark::kTargetFirst;
  }
  ASSIGN_OR_RETURN(const TokenizerClass tokenizer_class,
                   FindTokenizerClass(directory, config, /*file=*/nullptr));
  if (tokenizer_class == TokenizerClass::kM2m100) {
    return LanguageMark::kSourceFirst;
  }
  return InvalidArgument(
      directory, ": the tokenizer_class of a sentencepiece.bpe.model with a ",
      "vocab.json must be M2M100Tokenizer or SMALL100Tokenizer, or the ",
      "model_type of config.json m2m_100, got ", NameOf(tokenizer_class));
}

absl::Status CheckSampling(const TokenizerConfigFile& config) {
  const json::value* const value = config.Find("sp_model_kwargs");
  if (value == nullptr || value->is_null() || *value == json::object()) {
    return absl::OkStatus();
  }
  return InvalidArgument(config.path(), ": sp_model_kwargs must be empty, got ",
                         Shown(value));
}

// Appends the languages' tokens to those of vocab.json.
absl::StatusOr<Vocabulary> WithLanguages(
    const Vocabulary& numbers, std::span<const std::string_view> codes,
    std::vector<NaturalLanguage>* languages) {
  std::vector<std::pair<std::string, TokenId>> entries;
  for (TokenId token = 0; token < numbers.size(); ++token) {
    if (!numbers.Has(token)) continue;
    entries.emplace_back(numbers.Piece(token), token);
  }
  // As in transformers, the number of entries.
  auto next = static_cast<TokenId>(entries.size());
  for (const std::string_view code : codes) {
    languages->push_back({std::string(code), next});
    entries.emplace_back(Concat("__", code, "__"), next++);
  }
  return Vocabulary::Create(std::move(entries));
}

absl::StatusOr<std::optional<TokenId>> RoleOf(const TokenSettings& settings,
                                              std::string_view role,
                                              const Vocabulary& vocabulary) {
  const TokenEntry* const token = settings.Find(role);
  if (token == nullptr) return std::nullopt;
  const auto id = vocabulary.Find(token->content);
  if (id) return id;
  return InvalidArgument(settings.config.path(), ": ", role,
                         " must be a token of vocab.json, got ",
                         ShownInQuotes(token->content));
}

// Checks that listed and further special tokens are `special`, as they are
// numbered.
absl::Status CheckTokens(const TokenSettings& settings,
                         const Vocabulary& vocabulary,
                         const std::vector<TokenId>& special) {
  const auto is_special = [&](std::string_view content) {
    const auto id = vocabulary.Find(content);
    return id && std::ranges::find(special, *id) != special.end();
  };
  for (const auto& [id, token] : settings.listed) {
    if (is_special(token.content) && vocabulary.Find(token.content) == id) {
      continue;
    }
    return InvalidArgument(settings.listed_in, ": ",
                           ShownInQuotes(token.content),
                           " must be a token with a role or of a language, "
                           "with its id, got ",
                           id);
  }
  for (const TokenEntry& token : settings.ExtraTokens()) {
    if (is_special(token.content)) continue;
    return InvalidArgument(settings.config.path(),
                           ": further special tokens must be those of "
                           "languages, got ",
                           ShownInQuotes(token.content));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadM2m100Tokenizer(
    const std::string& directory) {
  ASSIGN_OR_RETURN(TokenSettings settings,
                   TokenSettings::Load(directory, /*file=*/nullptr));
  LanguageRule rule;
  ASSIGN_OR_RETURN(rule.mark, MarkOf(directory, settings.config));
  RETURN_IF_ERROR(CheckSampling(settings.config));
  ASSIGN_OR_RETURN(const auto codes, CodesOf(settings.config));
  SetDefaultRoles(TokenizerClass::kM2m100, &settings);
  ASSIGN_OR_RETURN(auto pieces, SentencePieceTokenizer::Load(
                                    directory + "/sentencepiece.bpe.model"));
  const std::string path = directory + "/vocab.json";
  ASSIGN_OR_RETURN(const Vocabulary numbers,
                   NumberedPiecesTokenizer::LoadNumbers(path));
  std::vector<NaturalLanguage> languages;
  absl::StatusOr<Vocabulary> vocabulary =
      WithLanguages(numbers, codes, &languages);
  if (!vocabulary.ok()) return Annotate(vocabulary.status(), path);
  NumberedPiecesTokenizer::Parts parts;
  for (const char* const role : kRoles) {
    ASSIGN_OR_RETURN(const auto token, RoleOf(settings, role, *vocabulary));
    if (token) parts.special.push_back(*token);
  }
  SpecialTokens& roles = parts.special_tokens;
  ASSIGN_OR_RETURN(roles.bos, RoleOf(settings, "bos_token", *vocabulary));
  ASSIGN_OR_RETURN(roles.eos, RoleOf(settings, "eos_token", *vocabulary));
  ASSIGN_OR_RETURN(roles.pad, RoleOf(settings, "pad_token", *vocabulary));
  ASSIGN_OR_RETURN(roles.unk, RoleOf(settings, "unk_token", *vocabulary));
  if (!roles.eos || !roles.unk) {
    return InvalidArgument(settings.config.path(),
                           ": eos_token and unk_token must be tokens, got ",
                           "null");
  }
  for (const NaturalLanguage& language : languages) {
    parts.special.push_back(language.token);
  }
  std::ranges::sort(parts.special);
  parts.special.erase(std::unique(parts.special.begin(), parts.special.end()),
                      parts.special.end());
  RETURN_IF_ERROR(CheckTokens(settings, *vocabulary, parts.special));
  RETURN_IF_ERROR(SetSource(settings, "en", &rule));
  parts.languages =
      NaturalLanguages(rule.mark, std::move(languages), *roles.eos);
  ASSIGN_OR_RETURN(Direction direction, parts.languages.DefaultOf(rule));
  parts.before_text = std::move(direction.before_text);
  parts.after_text = std::move(direction.after_text);
  parts.spellings =
      NumberedPiecesTokenizer::Spell(*vocabulary, *pieces, parts.special);
  return std::make_unique<NumberedPiecesTokenizer>(
      NumberedPiecesTokenizer::Files{std::move(pieces), /*target=*/nullptr,
                                     *std::move(vocabulary)},
      std::move(parts));
}

}  // namespace espalier
