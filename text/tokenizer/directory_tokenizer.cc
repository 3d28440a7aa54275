#include "text/tokenizer/directory_tokenizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/vocabulary.h"
#include "text/tokenizer/added_token_table.h"
#include "text/tokenizer/class_steps.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/token_settings.h"
#include "text/tokenizer/tokenizer_class.h"
#include "text/tokenizer/tokenizer_config.h"
#include "text/tokenizer/translator_steps.h"
#include "text/tokenizer/vocab_and_merges.h"

namespace espalier {
namespace {

// Gemma 3's has 33 MB.
constexpr size_t kMaxTokenizerJsonBytes = size_t{256} << 20;
constexpr size_t kMaxSentencePieceBytes = size_t{64} << 20;
// Merges are made of all cuts of a piece.
constexpr size_t kMaxBpePieceBytes = 256;

using enum TokenizerClass;
using PieceType = SentencePieceModel::Type;

// A tokenizer.json under construction, and its inputs.
struct Build {
  std::string path;  // vocabulary file, for errors
  size_t num_bytes = 0;
  TokenizerClass tokenizer_class = kGeneric;
  TokenSettings settings;
  json::object file;
  bool is_tokenizer_json = false;
};

absl::Status CheckBpePieces(const SentencePieceModel& model) {
  for (const SentencePieceModel::Entry& entry : model.pieces) {
    if (entry.piece.size() <= kMaxBpePieceBytes) continue;
    return InvalidArgument("a piece must have at most ", kMaxBpePieceBytes,
                           " bytes, got ", ShownInQuotes(entry.piece), " of ",
                           entry.piece.size());
  }
  return absl::OkStatus();
}

// Control and user-defined symbols are added tokens. Those of the config go
// before them, and the generic class splits texts at the latter itself.
void AddSymbols(const SentencePieceModel& model, Build* build) {
  if (build->settings.has_extra) return;
  for (const SentencePieceModel::Entry& entry : model.pieces) {
    const bool is_control = entry.type == PieceType::kControl;
    const bool is_mark = entry.type == PieceType::kUserDefined &&
                         build->tokenizer_class != kGeneric;
    if (!is_control && !is_mark) continue;
    TokenEntry token;
    token.content = entry.piece;
    token.special = is_control;
    token.normalized = false;
    build->settings.extra.push_back(std::move(token));
  }
}

absl::Status BuildFromSentencePiece(Build* build) {
  ASSIGN_OR_RETURN(const std::string bytes,
                   ReadFile(build->path, kMaxSentencePieceBytes));
  build->num_bytes = bytes.size();
  const absl::StatusOr<SentencePieceModel> model =
      ReadSentencePieceModel(bytes);
  if (!model.ok()) {
    return InvalidArgument(
        build->path, " is no SentencePiece model: ", Message(model.status()));
  }
  if (IsTranslator(build->tokenizer_class)) {
    AddSymbols(*model, build);
    ASSIGN_OR_RETURN(build->file, TranslatorFileOf(*model, build->path,
                                                   build->tokenizer_class,
                                                   &build->settings));
    return absl::OkStatus();
  }
  const bool has_own_steps =
      build->tokenizer_class == kLlama || build->tokenizer_class == kGemma;
  if (!has_own_steps && build->tokenizer_class != kGeneric) {
    return InvalidArgument(
        build->settings.config.path(), ": tokenizer_class must be one that ",
        "reads a tokenizer.model (LlamaTokenizer, GemmaTokenizer or ",
        "PreTrainedTokenizerFast), got that of ",
        NameOf(build->tokenizer_class), "; a tokenizer.json would be read");
  }
  if (has_own_steps || !model->is_unigram) {
    RETURN_IF_ERROR(Annotate(CheckBpePieces(*model), build->path));
  }
  AddSymbols(*model, build);
  if (has_own_steps) {
    ASSIGN_OR_RETURN(build->file,
                     AddClassSteps(build->tokenizer_class, BpeModelOf(*model),
                                   build->settings));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(build->file, GenericFileOf(*model, &build->settings));
  if (!model->add_dummy_prefix) return absl::OkStatus();
  // Each text between them gets a prefix of its own.
  for (auto& [id, token] : build->settings.listed) token.normalized = false;
  return absl::OkStatus();
}

// Applies the class to the tokenizer.json that was read.
absl::Status BuildFromJson(Build* build) {
  if (IsTranslator(build->tokenizer_class)) {
    TakeTranslatorSteps(build->tokenizer_class, &build->settings, &build->file);
    return absl::OkStatus();
  }
  const json::value* const model = build->file.if_contains("model");
  const bool is_bpe = model != nullptr && model->is_object() &&
                      model->get_object().contains("merges") &&
                      model->get_object().contains("vocab") &&
                      model->at("vocab").is_object();
  // The class's steps do not apply to another kind of vocabulary.
  if (!HasOwnSteps(build->tokenizer_class) || !is_bpe) return absl::OkStatus();
  json::object vocabulary = {{"vocab", model->at("vocab")},
                             {"merges", model->at("merges")}};
  const json::value* const post = build->file.if_contains("post_processor");
  const json::value post_processor = post == nullptr ? json::value() : *post;
  ASSIGN_OR_RETURN(build->file,
                   AddClassSteps(build->tokenizer_class, std::move(vocabulary),
                                 build->settings));
  build->file["post_processor"] = post_processor;
  return absl::OkStatus();
}

absl::Status BuildFromMerges(const std::string& directory, Build* build) {
  if (!HasOwnSteps(build->tokenizer_class) ||
      build->tokenizer_class == kLlama || build->tokenizer_class == kGemma) {
    return InvalidArgument(
        directory, ": the tokenizer_class of a vocab.json with a merges.txt ",
        "must be GPT2Tokenizer, RobertaTokenizer, BartTokenizer or ",
        "Qwen2Tokenizer, or the model_type of config.json one of theirs, got ",
        NameOf(build->tokenizer_class));
  }
  ASSIGN_OR_RETURN(json::object model,
                   ReadVocabAndMerges(directory, &build->num_bytes));
  ASSIGN_OR_RETURN(
      build->file,
      AddClassSteps(build->tokenizer_class, std::move(model), build->settings));
  return absl::OkStatus();
}

absl::Status AddTokens(const Build& build, AddedTokenTable* table) {
  const TokenSettings& settings = build.settings;
  RETURN_IF_ERROR(table->AddTokensOf(settings, build.path));
  if (build.tokenizer_class != kQwen2) return absl::OkStatus();
  // This class adds all of them again, with no flags but "special".
  const auto add_plain = [&](const TokenEntry& token) {
    TokenEntry plain;
    plain.content = token.content;
    plain.special = true;
    table->Add(plain);
  };
  for (const TokenEntry* token : settings.NamedTokens()) add_plain(*token);
  for (const TokenEntry& token : settings.ExtraTokens()) add_plain(token);
  return absl::OkStatus();
}

json::object SpecialPiece(const TokenEntry& token) {
  return {
      {"SpecialToken", json::object{{"id", token.content}, {"type_id", 0}}}};
}

// BOS and EOS around a text, as the flags of tokenizer_config.json say; those
// are not for a tokenizer.json, which says it itself.
absl::Status AddPostProcessor(const AddedTokenTable& table, Build* build) {
  const TokenSettings& settings = build->settings;
  json::object& file = build->file;
  if (build->tokenizer_class == kRoberta) {
    const auto with_id = [&](std::string_view role) {
      const TokenEntry* const token = settings.Find(role);
      if (token == nullptr) return json::array{"", -1};
      return json::array{token->content, table.IdOf(token->content)};
    };
    file["post_processor"] = {{"type", "RobertaProcessing"},
                              {"sep", with_id("sep_token")},
                              {"cls", with_id("cls_token")}};
    return absl::OkStatus();
  }
  if (build->is_tokenizer_json || IsTranslator(build->tokenizer_class)) {
    return absl::OkStatus();
  }
  json::array single;
  single.push_back(
      json::object{{"Sequence", json::object{{"id", "A"}, {"type_id", 0}}}});
  json::object special;
  const auto add = [&](const char* flag, const char* role,
                       bool is_before) -> absl::Status {
    ASSIGN_OR_RETURN(const auto is_on, settings.config.Flag(flag));
    const TokenEntry* const token = settings.Find(role);
    if (!is_on.value_or(false) || token == nullptr) return absl::OkStatus();
    single.insert(is_before ? single.begin() : single.end(),
                  SpecialPiece(*token));
    special[token->content] = {{"id", token->content},
                               {"ids", json::array{table.IdOf(token->content)}},
                               {"tokens", json::array{token->content}}};
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add("add_bos_token", "bos_token", true));
  RETURN_IF_ERROR(add("add_eos_token", "eos_token", false));
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", std::move(single)},
                            {"special_tokens", std::move(special)}};
  return absl::OkStatus();
}

// AddedTokenTable leaves out tokens without an id, and the first of two with
// one, so that JsonTokenizer, which reads what the table has, does not see
// them.
absl::Status CheckAddedTokenIds(const json::object& file) {
  const json::value* const added = file.if_contains("added_tokens");
  if (added == nullptr || added->is_null()) return absl::OkStatus();
  if (!added->is_array()) {
    return InvalidArgument("added_tokens must be a list, got ", Shown(added));
  }
  const json::array& list = added->get_array();
  std::map<int64_t, size_t> places;  // by ids
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(const JsonFields fields,
                     JsonFields::OfItem(list, i, "added_tokens"));
    ASSIGN_OR_RETURN(const int64_t id, fields.Integer("id"));
    if (id < 0 || id >= Vocabulary::kMaxTokens) {
      return fields.Wrong("id", Concat("in [0, ", Vocabulary::kMaxTokens, ")"));
    }
    const auto [place, is_first] = places.emplace(id, i);
    if (is_first) continue;
    return fields.Wrong(
        "id", Concat("another than that of added_tokens[", place->second, "]"));
  }
  return absl::OkStatus();
}

// Reads the tokenizer.json, if `build` is of one.
absl::Status ReadTokenizerJson(Build* build) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(build->path, kMaxTokenizerJsonBytes));
  build->num_bytes = text.size();
  absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), build->path);
  if (!value->is_object()) {
    return InvalidArgument(build->path, ": must be an object, got ",
                           Shown(&*value));
  }
  build->file = std::move(value->get_object());
  return Annotate(CheckAddedTokenIds(build->file), build->path);
}

absl::Status BuildVocabulary(const std::string& directory,
                             std::string_view file, Build* build) {
  SetDefaultRoles(build->tokenizer_class, &build->settings);
  if (build->is_tokenizer_json) return BuildFromJson(build);
  if (file == "sentencepiece.bpe.model" &&
      !IsTranslator(build->tokenizer_class)) {
    return InvalidArgument(
        directory, ": the tokenizer_class of a ", file, " must be ",
        "MBartTokenizer or MBart50Tokenizer, or with a vocab.json ",
        "M2M100Tokenizer, got ", NameOf(build->tokenizer_class));
  }
  if (file.ends_with(".model")) return BuildFromSentencePiece(build);
  return BuildFromMerges(directory, build);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadDirectoryTokenizer(
    const std::string& directory, std::string_view file) {
  Build build;
  build.path = Concat(directory, "/", file);
  build.is_tokenizer_json = file.ends_with("tokenizer.json");
  if (build.is_tokenizer_json) RETURN_IF_ERROR(ReadTokenizerJson(&build));
  const json::object* const tokenizer_json =
      build.is_tokenizer_json ? &build.file : nullptr;
  ASSIGN_OR_RETURN(build.settings,
                   TokenSettings::Load(directory, tokenizer_json));
  ASSIGN_OR_RETURN(
      build.tokenizer_class,
      FindTokenizerClass(directory, build.settings.config, tokenizer_json));
  RETURN_IF_ERROR(BuildVocabulary(directory, file, &build));
  AddedTokenTable table(build.file);
  RETURN_IF_ERROR(AddTokens(build, &table));
  RETURN_IF_ERROR(AddPostProcessor(table, &build));
  build.file["added_tokens"] = table.ToJson();
  TokenizerConfig config = build.settings.Roles();
  if (IsTranslator(build.tokenizer_class)) {
    ASSIGN_OR_RETURN(config.languages,
                     LanguageRuleOf(build.tokenizer_class, build.settings));
  } else if (build.tokenizer_class == kT5) {
    config.languages = MadladRule();
  }
  auto tokenizer = JsonTokenizer::Make(json::value(std::move(build.file)),
                                       build.num_bytes, config, build.path);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), build.path);
  return tokenizer;
}

}  // namespace espalier
