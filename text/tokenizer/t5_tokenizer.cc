#include "text/tokenizer/t5_tokenizer.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/base64.h"
#include "text/tokenizer/json_tokenizer.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {
namespace {

constexpr size_t kMaxT5ModelBytes = size_t{64} << 20;
constexpr int64_t kMaxExtraIds = 10'000;
// T5Tokenizer's, whatever the names are.
constexpr int kPadId = 0, kEosId = 1, kUnknownId = 2;

json::object Special(int id, const std::string& piece) {
  return {
      {"id", id}, {"content", piece}, {"special", true}, {"normalized", false}};
}

absl::StatusOr<int64_t> NumExtraIds(const TokenizerConfigFile& config) {
  const json::value* value = config.Find("extra_ids");
  if (value == nullptr || value->is_null()) return 100;
  if (value->is_int64() && value->get_int64() >= 0 &&
      value->get_int64() <= kMaxExtraIds) {
    return value->get_int64();
  }
  return InvalidArgument(config.path(),
                         ": extra_ids must be an integer in [0, ", kMaxExtraIds,
                         "], got ", Shown(value));
}

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

// The steps around the pieces are the same of all.
json::object StepsOf(const SentencePieceModel& model) {
  const json::object metaspace = {{"type", "Metaspace"},
                                  {"replacement", "\u2581"},
                                  {"prepend_scheme", "always"},
                                  {"split", true}};
  const std::string eos(model.pieces[kEosId].piece);
  json::object file = {
      {"pre_tokenizer",
       {{"type", "Sequence"},
        {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
          {{"SpecialToken", {{"id", eos}, {"type_id", 0}}}}}},
        {"special_tokens",
         {{eos,
           {{"id", eos},
            {"ids", json::array{kEosId}},
            {"tokens", json::array{eos}}}}}}}},
      {"decoder", metaspace}};
  if (!model.charsmap.empty()) {
    file["normalizer"] = {{"type", "Precompiled"},
                          {"precompiled_charsmap", ToBase64(model.charsmap)}};
  }
  return file;
}

std::string AsTokenizerJson(const SentencePieceModel& model,
                            int64_t num_extra_ids) {
  json::array vocab, added;
  for (const SentencePieceModel::Entry& entry : model.pieces) {
    const int id = static_cast<int>(vocab.size());
    const std::string piece(entry.piece);
    if (id <= kUnknownId) added.push_back(Special(id, piece));
    vocab.push_back(json::array{piece, static_cast<double>(entry.score)});
  }
  for (int64_t i = num_extra_ids - 1; i >= 0; --i) {
    const std::string piece = Concat("<extra_id_", i, ">");
    added.push_back(Special(static_cast<int>(vocab.size()), piece));
    vocab.push_back(json::array{piece, 0.0});
  }
  json::object file = StepsOf(model);
  file["added_tokens"] = std::move(added);
  file["model"] = {
      {"type", "Unigram"}, {"unk_id", kUnknownId}, {"vocab", std::move(vocab)}};
  return WriteJson(file);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadT5Tokenizer(
    const std::string& directory) {
  ASSIGN_OR_RETURN(
      const TokenizerConfigFile file,
      TokenizerConfigFile::Load(directory + "/tokenizer_config.json"));
  RETURN_IF_ERROR(CheckClass(directory, file));
  ASSIGN_OR_RETURN(const int64_t num_extra_ids, NumExtraIds(file));
  ASSIGN_OR_RETURN(TokenizerConfig config, TokenizerConfig::Of(file));
  const std::string path = directory + "/spiece.model";
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kMaxT5ModelBytes));
  const absl::StatusOr<SentencePieceModel> model =
      ReadSentencePieceModel(bytes);
  if (!model.ok()) {
    return InvalidArgument(
        path, " is no SentencePiece model: ", Message(model.status()));
  }
  RETURN_IF_ERROR(Annotate(CheckPieces(*model), path));
  if (!config.pad_token) config.pad_token = model->pieces[kPadId].piece;
  if (!config.eos_token) config.eos_token = model->pieces[kEosId].piece;
  auto tokenizer = JsonTokenizer::Parse(AsTokenizerJson(*model, num_extra_ids),
                                        config, path);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

}  // namespace espalier
