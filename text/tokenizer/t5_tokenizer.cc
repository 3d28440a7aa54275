#include "text/tokenizer/t5_tokenizer.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/base64.h"
#include "text/tokenizer/added_token_table.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/t5_parts.h"
#include "text/tokenizer/token_settings.h"
#include "text/tokenizer/tokenizer_config.h"
#include "text/tokenizer/translator_steps.h"

namespace espalier {
namespace {

constexpr size_t kMaxT5ModelBytes = size_t{64} << 20;
constexpr int64_t kNumT5ExtraIds = 100;
// T5Tokenizer's, whatever the names are.
constexpr int kPadId = 0, kEosId = 1, kUnknownId = 2;

// Refuses files of PEGASUS, ALBERT and others, which have the same name but
// other ids. Uses the tokenizer's class or, if there is none, the model's type.
absl::Status CheckClass(const std::string& directory,
                        const TokenizerConfigFile& config) {
  const json::value* value = config.Find("tokenizer_class");
  std::string place = config.path() + ": tokenizer_class";
  // An object as well, that of the model.
  ASSIGN_OR_RETURN(const TokenizerConfigFile model,
                   TokenizerConfigFile::Load(directory + "/config.json"));
  if (value == nullptr || value->is_null()) {
    value = model.Find("model_type");
    place = model.path() + ": model_type";
  }
  if (value == nullptr || value->is_null()) return absl::OkStatus();
  for (const char* const name :
       {"T5Tokenizer", "T5TokenizerFast", "MT5Tokenizer", "MT5TokenizerFast",
        "t5", "mt5"}) {
    if (*value == name) return absl::OkStatus();
  }
  return InvalidArgument(place,
                         " of a spiece.model must be that of T5 or mT5, ",
                         "got ", Shown(value), "; transformers writes ",
                         "tokenizer.json, which is read in its place, by ",
                         "AutoTokenizer's save_pretrained");
}

absl::Status CheckPieces(const SentencePieceModel& model) {
  if (!model.is_unigram) return InvalidArgument("is no unigram model");
  if (model.pieces.size() <= kUnknownId || model.unknown_id != kUnknownId) {
    return InvalidArgument("must have pad, EOS and the unknown token first");
  }
  return absl::OkStatus();
}

// Gives the roles their usual tokens, and makes the gaps special where no
// further special tokens are listed.
absl::Status SettleTokens(const SentencePieceModel& model,
                          int64_t num_extra_ids, TokenSettings* settings) {
  for (const auto& [role, id] :
       {std::pair("pad_token", kPadId), std::pair("eos_token", kEosId),
        std::pair("unk_token", kUnknownId)}) {
    const TokenEntry* const given = settings->Find(role);
    if (given == nullptr) {
      settings->roles.erase(role);
      settings->SetDefault(role, model.pieces[id].piece);
      continue;
    }
    const bool is_piece = std::ranges::any_of(
        model.pieces, [&](const SentencePieceModel::Entry& entry) {
          return entry.piece == given->content;
        });
    if (is_piece) continue;
    return InvalidArgument(settings->config.path(), ": ", role,
                           " must be a token of spiece.model, got ",
                           ShownInQuotes(given->content));
  }
  if (settings->has_extra || !settings->extra.empty()) return absl::OkStatus();
  SetGaps(num_extra_ids, settings);
  return absl::OkStatus();
}

json::object VocabularyOf(const SentencePieceModel& model,
                          int64_t num_extra_ids) {
  json::array vocab;
  for (const SentencePieceModel::Entry& entry : model.pieces) {
    vocab.push_back(json::array{std::string(entry.piece),
                                static_cast<double>(entry.score)});
  }
  for (int64_t i = num_extra_ids - 1; i >= 0; --i) {
    vocab.push_back(json::array{NameOfGap(i), 0.0});
  }
  return {
      {"type", "Unigram"}, {"unk_id", kUnknownId}, {"vocab", std::move(vocab)}};
}

// Adds the steps around the pieces, which end a text with `eos`.
void AddSteps(const SentencePieceModel& model, const std::string& eos,
              int64_t eos_id, json::object* file) {
  const json::object metaspace = {{"type", "Metaspace"},
                                  {"replacement", "\u2581"},
                                  {"prepend_scheme", "always"},
                                  {"split", true}};
  (*file)["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}};
  (*file)["post_processor"] = EndWithEos(eos, eos_id);
  (*file)["decoder"] = metaspace;
  if (!model.charsmap.empty()) {
    (*file)["normalizer"] = {
        {"type", "Precompiled"},
        {"precompiled_charsmap", ToBase64(model.charsmap)}};
  }
}

// The tokenizer.json that transformers makes of `model`.
absl::StatusOr<json::object> AsTokenizerJson(const SentencePieceModel& model,
                                             int64_t num_extra_ids,
                                             const TokenSettings& settings,
                                             const std::string& path) {
  json::object file = {{"model", VocabularyOf(model, num_extra_ids)}};
  AddedTokenTable table(file);
  RETURN_IF_ERROR(table.AddTokensOf(settings, path));
  const std::string& eos = settings.Find("eos_token")->content;
  const int64_t eos_id = table.IdOf(eos);
  json::array added = table.ToJson();
  AddSteps(model, eos, eos_id, &file);
  file["added_tokens"] = std::move(added);
  return file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadT5Tokenizer(
    const std::string& directory) {
  ASSIGN_OR_RETURN(TokenSettings settings,
                   TokenSettings::Load(directory, /*file=*/nullptr));
  RETURN_IF_ERROR(CheckClass(directory, settings.config));
  ASSIGN_OR_RETURN(const int64_t num_extra_ids,
                   NumExtraIds(settings.config, kNumT5ExtraIds));
  const std::string path = directory + "/spiece.model";
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxT5ModelBytes));
  const absl::StatusOr<SentencePieceModel> model =
      ReadSentencePieceModel(bytes);
  if (!model.ok()) {
    return InvalidArgument(
        path, " is no SentencePiece model: ", Message(model.status()));
  }
  RETURN_IF_ERROR(Annotate(CheckPieces(*model), path));
  RETURN_IF_ERROR(SettleTokens(*model, num_extra_ids, &settings));
  ASSIGN_OR_RETURN(const json::object file,
                   AsTokenizerJson(*model, num_extra_ids, settings, path));
  TokenizerConfig roles = settings.Roles();
  roles.languages = MadladRule();
  auto tokenizer = JsonTokenizer::Parse(WriteJson(file), roles, path);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

}  // namespace espalier
