#include "text/pipeline/subword_model_file.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/pipeline/bpe.h"
#include "text/pipeline/byte_fallback.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/unigram.h"

namespace espalier {
namespace {

using BpeMerge = BpeModel::Merge;

// Checks that every byte has a token, as byte fallback requires.
absl::Status CheckByteTokens(const JsonFields& fields,
                             const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary.Find(FallbackPiece(byte))) continue;
    return fields.Wrong("byte_fallback",
                        Concat("false, as ", fields.place(), ".vocab has no ",
                               FallbackPiece(byte)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> MakeVocabulary(
    const JsonFields& fields,
    std::vector<std::pair<std::string, TokenId>> entries) {
  absl::StatusOr<Vocabulary> vocabulary =
      Vocabulary::Create(std::move(entries));
  if (vocabulary.ok()) return vocabulary;
  return fields.WrongAs("vocab", vocabulary.status());
}

// The two sides of a merge: ["a", "b"], or "a b".
std::optional<std::pair<std::string_view, std::string_view>> SidesOf(
    const json::value& value) {
  const auto view = [](const json::string& text) {
    return std::string_view(text.data(), text.size());
  };
  if (value.is_array()) {
    const json::array& pair = value.get_array();
    const bool are_two =
        pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    if (!are_two) return std::nullopt;
    return std::pair(view(pair[0].get_string()), view(pair[1].get_string()));
  }
  if (!value.is_string()) return std::nullopt;
  const std::string_view text = view(value.get_string());
  const size_t space = text.find(' ');
  if (space == std::string_view::npos ||
      text.find(' ', space + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

absl::StatusOr<std::vector<BpeMerge>> ReadMerges(const JsonFields& fields,
                                                 const Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const json::array* list, fields.Array("merges"));
  std::vector<BpeMerge> merges;
  merges.reserve(list->size());
  std::string joined;
  for (size_t i = 0; i < list->size(); ++i) {
    const auto place = [&] { return ItemPlace(fields.Place("merges"), i); };
    const auto sides = SidesOf((*list)[i]);
    if (!sides) {
      // A comment that files made of merges.txt begin with.
      const bool is_version =
          (*list)[i].is_string() &&
          std::string_view((*list)[i].get_string()).starts_with("#version");
      if (is_version) continue;
      return InvalidArgument(place(), " must be two pieces, got ",
                             Shown(&(*list)[i]));
    }
    const auto& [left, right] = *sides;
    joined.assign(left).append(right);
    const auto left_id = vocabulary.Find(left);
    const auto right_id = vocabulary.Find(right);
    const auto joined_id = vocabulary.Find(joined);
    if (!left_id || !right_id || !joined_id) {
      const std::string_view lacking = !left_id    ? left
                                       : !right_id ? right
                                                   : std::string_view(joined);
      return InvalidArgument(place(), " needs ", ShownInQuotes(lacking),
                             ", which ", fields.Place("vocab"),
                             " does not have");
    }
    merges.push_back({*left_id, *right_id, *joined_id});
  }
  return merges;
}

// Fields that change what the model does, and are not supported.
absl::Status CheckBpeFields(const JsonFields& fields) {
  RETURN_IF_ERROR(fields.CheckKnown(
      {"type", "dropout", "unk_token", "continuing_subword_prefix",
       "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
       "vocab", "merges"}));
  const json::value* dropout = fields.Find("dropout");
  const bool has_dropout =
      dropout != nullptr &&
      !(dropout->is_number() && dropout->to_number<double>() == 0);
  if (has_dropout) return fields.Wrong("dropout", "0 or null");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const auto affix, fields.OptionalString(name));
    if (!affix.value_or("").empty()) return fields.Wrong(name, "empty or null");
  }
  return absl::OkStatus();
}

absl::StatusOr<SubwordModelFile> ReadBpe(const JsonFields& fields,
                                         bool is_byte_level) {
  RETURN_IF_ERROR(CheckBpeFields(fields));
  BpeOptions options;
  options.is_byte_level = is_byte_level;
  ASSIGN_OR_RETURN(options.fuse_unk, fields.Bool("fuse_unk", false));
  ASSIGN_OR_RETURN(options.ignore_merges, fields.Bool("ignore_merges", false));
  ASSIGN_OR_RETURN(options.byte_fallback, fields.Bool("byte_fallback", false));
  if (options.byte_fallback && is_byte_level) {
    return fields.Wrong("byte_fallback", "false beside a ByteLevel");
  }
  ASSIGN_OR_RETURN(const json::object* vocab, fields.Object("vocab"));
  ASSIGN_OR_RETURN(Vocabulary read,
                   Vocabulary::Read(*vocab, fields.Place("vocab")));
  auto vocabulary = std::make_unique<const Vocabulary>(std::move(read));
  if (options.byte_fallback) {
    RETURN_IF_ERROR(CheckByteTokens(fields, *vocabulary));
  }
  ASSIGN_OR_RETURN(const auto unk, fields.OptionalString("unk_token"));
  if (unk) {
    options.unk = vocabulary->Find(*unk);
    if (!options.unk) return fields.Wrong("unk_token", "a piece of the vocab");
  }
  ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges,
                   ReadMerges(fields, *vocabulary));
  auto model = std::make_unique<BpeModel>(*vocabulary, merges, options);
  return SubwordModelFile{std::move(vocabulary), std::move(model), options.unk};
}

absl::StatusOr<SubwordModelFile> ReadUnigram(const JsonFields& fields,
                                             bool is_byte_level,
                                             const AddedTokens& added) {
  RETURN_IF_ERROR(
      fields.CheckKnown({"type", "unk_id", "vocab", "byte_fallback"}));
  if (is_byte_level) return fields.Wrong("type", "BPE beside a ByteLevel");
  ASSIGN_OR_RETURN(const json::array* list, fields.Array("vocab"));
  std::vector<std::pair<std::string, TokenId>> entries;
  std::vector<double> scores;
  for (size_t i = 0; i < list->size(); ++i) {
    const json::value& value = (*list)[i];
    const json::array* pair = value.if_array();
    const bool is_entry = pair != nullptr && pair->size() == 2 &&
                          (*pair)[0].is_string() && (*pair)[1].is_number();
    if (!is_entry || i >= static_cast<size_t>(Vocabulary::kMaxTokens)) {
      return InvalidArgument(fields.Place("vocab"), "[", i, "] must be one of ",
                             Vocabulary::kMaxTokens,
                             " pieces with its score, got ", Shown(&value));
    }
    const auto token = static_cast<TokenId>(i);
    const size_t num_bytes = (*pair)[0].get_string().size();
    const AddedToken* const is_added = added.Find(token);
    const bool is_reachable = is_added == nullptr || !is_added->special;
    if (is_reachable && num_bytes > UnigramModel::kMaxPieceBytes) {
      return InvalidArgument(
          fields.Place("vocab"), "[", i, "] must be a piece of at most ",
          UnigramModel::kMaxPieceBytes, " bytes, got one of ", num_bytes);
    }
    entries.emplace_back((*pair)[0].get_string(), token);
    scores.push_back((*pair)[1].to_number<double>());
  }
  if (entries.empty()) return fields.Wrong("vocab", "a list with entries");
  ASSIGN_OR_RETURN(Vocabulary read, MakeVocabulary(fields, std::move(entries)));
  auto vocabulary = std::make_unique<const Vocabulary>(std::move(read));
  UnigramOptions options;
  ASSIGN_OR_RETURN(options.byte_fallback, fields.Bool("byte_fallback", false));
  if (options.byte_fallback) {
    RETURN_IF_ERROR(CheckByteTokens(fields, *vocabulary));
  }
  if (fields.Find("unk_id") != nullptr) {
    ASSIGN_OR_RETURN(const int64_t id, fields.Integer("unk_id"));
    if (id < 0 || id >= vocabulary->size()) {
      return fields.Wrong("unk_id", Concat("in [0, ", vocabulary->size(), ")"));
    }
    options.unk = static_cast<TokenId>(id);
  }
  auto model =
      std::make_unique<UnigramModel>(*vocabulary, std::move(scores), options);
  return SubwordModelFile{std::move(vocabulary), std::move(model), options.unk};
}

}  // namespace

absl::StatusOr<SubwordModelFile> ReadSubwordModel(const json::value& value,
                                                  const std::string& place,
                                                  bool is_byte_level,
                                                  const AddedTokens& added) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, place));
  std::string type;
  if (fields.Find("type") != nullptr) {
    ASSIGN_OR_RETURN(type, fields.String("type"));
  } else {
    // In files of 2020 the fields determine the type.
    const json::value* const vocab = fields.Find("vocab");
    const bool has_scores = vocab != nullptr && vocab->is_array();
    type = fields.Find("merges") != nullptr ? "BPE"
           : has_scores                     ? "Unigram"
                                            : "";
  }
  if (type == "BPE") return ReadBpe(fields, is_byte_level);
  if (type == "Unigram") return ReadUnigram(fields, is_byte_level, added);
  return fields.Wrong("type", "BPE or Unigram");
}

}  // namespace espalier
