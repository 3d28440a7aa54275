#include "text/tokenizer/translator_steps.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/status.h"
#include "text/pipeline/base64.h"

namespace espalier {
namespace {

using enum TokenizerClass;

// Languages of mBART-50; mBART-cc25 has the first 25.
constexpr std::string_view kMbartCodes[] = {
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX",
    "gu_IN", "hi_IN", "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV",
    "my_MM", "ne_NP", "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN",
    "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID",
    "ka_GE", "km_KH", "mk_MK", "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF",
    "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA",
    "ur_PK", "xh_ZA", "gl_ES", "sl_SI"};
constexpr size_t kNumCc25 = 25;

// The ids of roles in fairseq's dictionaries.
constexpr int kFairseqUnknownId = 3;
// A SentencePiece model's own: <unk>, <s>, </s>.
constexpr size_t kNumModelRoles = 3;

std::span<const std::string_view> CodesOf(TokenizerClass tokenizer_class) {
  if (tokenizer_class == kMbart50) return kMbartCodes;
  return std::span(kMbartCodes).first(kNumCc25);
}

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }

// "Latn"
bool IsScript(std::string_view code) {
  return code.size() == 4 && IsUpper(code[0]) &&
         std::ranges::all_of(code.substr(1), IsLower);
}

// "XX"
bool IsRegion(std::string_view code) {
  return code.size() == 2 && std::ranges::all_of(code, IsUpper);
}

// "eng_Latn"
std::string_view NllbCodeOf(std::string_view token) {
  const bool is_code = token.size() == 8 && token[3] == '_' &&
                       std::ranges::all_of(token.substr(0, 3), IsLower) &&
                       IsScript(token.substr(4));
  return is_code ? token : std::string_view();
}

// "en_XX"
std::string_view MbartCodeOf(std::string_view token) {
  const bool is_code = token.size() == 5 && token[2] == '_' &&
                       std::ranges::all_of(token.substr(0, 2), IsLower) &&
                       IsRegion(token.substr(3));
  return is_code ? token : std::string_view();
}

// "ms_Arab_BN" of "<2ms_Arab_BN>"
std::string_view MadladCodeOf(std::string_view token) {
  if (!token.starts_with("<2") || !token.ends_with('>')) return {};
  const std::string_view code = token.substr(2, token.size() - 3);
  const std::vector<std::string> parts = absl::StrSplit(std::string(code), '_');
  const std::string& language = parts[0];
  size_t num_read = 1;
  if (num_read < parts.size() && IsScript(parts[num_read])) ++num_read;
  if (num_read < parts.size() && IsRegion(parts[num_read])) ++num_read;
  const bool is_code = language.size() >= 2 && language.size() <= 4 &&
                       std::ranges::all_of(language, IsLower) &&
                       num_read == parts.size();
  return is_code ? code : std::string_view();
}

json::object Metaspace() {
  return {{"type", "Metaspace"},
          {"replacement", "\u2581"},
          {"prepend_scheme", "always"},
          {"split", true}};
}

// Rules of a model, or null, and one space for several.
json::value SpacesNormalizer(const json::value& charsmap,
                             bool is_alone_allowed) {
  json::array steps;
  if (charsmap.is_object()) steps.push_back(charsmap);
  if (steps.empty() && !is_alone_allowed) return nullptr;
  steps.push_back(json::object{{"type", "Replace"},
                               {"pattern", {{"Regex", " {2,}"}}},
                               {"content", " "}});
  return json::object{{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

// Returns the step Precompiled among the file's normalizers; null if there is
// none.
json::value CharsmapOf(const json::object& file) {
  const json::value* const normalizer = file.if_contains("normalizer");
  if (normalizer == nullptr || !normalizer->is_object()) return nullptr;
  const json::object& object = normalizer->get_object();
  const json::value* const list = object.if_contains("normalizers");
  const json::array steps = list != nullptr && list->is_array()
                                ? list->get_array()
                                : json::array{object};
  for (const json::value& step : steps) {
    if (!step.is_object()) continue;
    const json::value* const type = step.get_object().if_contains("type");
    if (type != nullptr && *type == "Precompiled") return step;
  }
  return nullptr;
}

json::object StepsOf(TokenizerClass tokenizer_class, json::object model,
                     const json::value& charsmap) {
  json::object file = {{"pre_tokenizer", Metaspace()},
                       {"decoder", Metaspace()},
                       {"model", std::move(model)}};
  if (tokenizer_class == kMbart) {
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "WhitespaceSplit"}}, Metaspace()}}};
  } else {
    file["normalizer"] =
        SpacesNormalizer(charsmap, tokenizer_class == kMbart50);
  }
  return file;
}

// The class's own tokens: languages, and a mask that takes the spaces before
// it.
void SettleTokens(TokenizerClass tokenizer_class, TokenSettings* settings) {
  const auto mask = settings->roles.find("mask_token");
  if (mask != settings->roles.end() && mask->second && mask->second->is_plain) {
    mask->second->lstrip = true;
    mask->second->normalized = true;
  }
  if (tokenizer_class == kNllb) return;
  settings->extra = settings->ExtraTokens();
  settings->has_extra = true;
  for (const std::string_view code : CodesOf(tokenizer_class)) {
    TokenEntry token;
    token.content = code;
    token.special = true;
    settings->extra.push_back(std::move(token));
  }
}

}  // namespace

bool IsTranslator(TokenizerClass tokenizer_class) {
  return tokenizer_class == kNllb || tokenizer_class == kMbart ||
         tokenizer_class == kMbart50;
}

void TakeTranslatorSteps(TokenizerClass tokenizer_class,
                         TokenSettings* settings, json::object* file) {
  SettleTokens(tokenizer_class, settings);
  const json::value* const model = file->if_contains("model");
  if (model == nullptr || !model->is_object()) return;
  const json::value* const vocab = model->get_object().if_contains("vocab");
  const json::value* const merges = model->get_object().if_contains("merges");
  if (vocab == nullptr) return;
  const json::value charsmap = CharsmapOf(*file);
  if (tokenizer_class == kNllb && vocab->is_object() && merges != nullptr) {
    json::object bpe = {{"type", "BPE"},
                        {"vocab", *vocab},
                        {"merges", *merges},
                        {"fuse_unk", true}};
    const TokenEntry* const unk = settings->Find("unk_token");
    if (unk != nullptr) bpe["unk_token"] = unk->content;
    *file = StepsOf(tokenizer_class, std::move(bpe), charsmap);
  } else if (tokenizer_class != kNllb && vocab->is_array()) {
    *file = StepsOf(
        tokenizer_class,
        {{"type", "Unigram"}, {"unk_id", kFairseqUnknownId}, {"vocab", *vocab}},
        charsmap);
  }
}

absl::StatusOr<json::object> TranslatorFileOf(const SentencePieceModel& model,
                                              const std::string& path,
                                              TokenizerClass tokenizer_class,
                                              TokenSettings* settings) {
  if (tokenizer_class == kNllb) {
    return InvalidArgument(path,
                           " has no languages: those of NllbTokenizer are in "
                           "the tokenizer.json that the model comes with");
  }
  if (!model.is_unigram || model.pieces.size() <= kNumModelRoles ||
      model.unknown_id != 0) {
    return InvalidArgument(
        path, " must be of a unigram model whose first piece is the unknown ",
        "token, as mBART's");
  }
  SettleTokens(tokenizer_class, settings);
  json::array vocab;
  const auto add = [&](std::string_view piece, double score) {
    vocab.push_back(json::array{piece, score});
  };
  for (const char* const role :
       {"cls_token", "pad_token", "eos_token", "unk_token"}) {
    const TokenEntry* const token = settings->Find(role);
    if (token == nullptr) {
      return InvalidArgument(settings->config.path(), ": ", role,
                             " must be a token, got null");
    }
    add(token->content, 0);
  }
  for (size_t i = kNumModelRoles; i < model.pieces.size(); ++i) {
    add(model.pieces[i].piece, model.pieces[i].score);
  }
  for (const std::string_view code : CodesOf(tokenizer_class)) add(code, 0);
  const TokenEntry* const mask = settings->Find("mask_token");
  if (mask != nullptr) add(mask->content, 0);
  json::value charsmap;
  if (!model.charsmap.empty()) {
    charsmap = {{"type", "Precompiled"},
                {"precompiled_charsmap", ToBase64(model.charsmap)}};
  }
  return StepsOf(tokenizer_class,
                 {{"type", "Unigram"},
                  {"unk_id", kFairseqUnknownId},
                  {"vocab", std::move(vocab)}},
                 charsmap);
}

LanguageRule MadladRule() {
  return {.mark = LanguageMark::kTargetFirst, .code_of = MadladCodeOf};
}

absl::Status SetSource(const TokenSettings& settings, const char* otherwise,
                       LanguageRule* rule) {
  const json::value* const given = settings.config.Find("src_lang");
  rule->source = otherwise;
  if (given == nullptr || given->is_null()) return absl::OkStatus();
  if (!given->is_string()) {
    return InvalidArgument(settings.config.path(),
                           ": src_lang must be a string, got ", Shown(given));
  }
  rule->source = std::string(given->get_string());
  rule->source_in = settings.config.path();
  return absl::OkStatus();
}

absl::StatusOr<LanguageRule> LanguageRuleOf(TokenizerClass tokenizer_class,
                                            const TokenSettings& settings) {
  const TokenEntry* const eos = settings.Find("eos_token");
  if (eos == nullptr) {
    return InvalidArgument(settings.config.path(),
                           ": eos_token must be a token, got null");
  }
  LanguageRule rule;
  if (tokenizer_class == kNllb) {
    ASSIGN_OR_RETURN(const auto is_legacy,
                     settings.config.Flag("legacy_behaviour"));
    if (is_legacy.value_or(false)) rule.mark = LanguageMark::kSourceLast;
    rule.code_of = NllbCodeOf;
    RETURN_IF_ERROR(SetSource(settings, "eng_Latn", &rule));
    return rule;
  }
  if (tokenizer_class == kMbart) rule.mark = LanguageMark::kSourceLast;
  rule.code_of = MbartCodeOf;
  RETURN_IF_ERROR(SetSource(settings, "en_XX", &rule));
  return rule;
}

}  // namespace espalier
