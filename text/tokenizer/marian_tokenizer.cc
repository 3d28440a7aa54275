#include "text/tokenizer/marian_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/numbered_pieces_tokenizer.h"
#include "text/tokenizer/sentencepiece_tokenizer.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {
namespace {

// Looking for them may take as much at each place of a text.
constexpr size_t kMaxSpecialBytes = 256;
constexpr std::string_view kListedTokens = "added_tokens_decoder";

bool IsEmpty(const json::value* value) {
  if (value == nullptr || value->is_null()) return true;
  if (value->is_array()) return value->get_array().empty();
  return value->is_object() && value->get_object().empty();
}

absl::Status CheckNoExtraTokens(const TokenizerConfigFile& file) {
  for (const char* const field :
       {"extra_special_tokens", "additional_special_tokens"}) {
    const json::value* value = file.Find(field);
    if (IsEmpty(value)) continue;
    return InvalidArgument(file.path(), ": ", field, " must be empty, got ",
                           Shown(value));
  }
  return absl::OkStatus();
}

absl::Status CheckConfig(const TokenizerConfigFile& config) {
  ASSIGN_OR_RETURN(const auto separate, config.Flag("separate_vocabs"));
  if (separate == true) {
    return InvalidArgument(config.path(),
                           ": separate_vocabs must be false, got true");
  }
  if (const json::value* value = config.Find("sp_model_kwargs");
      !IsEmpty(value)) {
    return InvalidArgument(
        config.path(), ": sp_model_kwargs must be empty, got ", Shown(value));
  }
  return CheckNoExtraTokens(config);
}

// Files that say more of the tokens than vocab.json. The last two are empty if
// the first has added_tokens_decoder: then they are not read.
struct TokenFiles {
  TokenizerConfigFile config;
  TokenizerConfigFile special_map;
  TokenizerConfigFile added;
};

absl::StatusOr<TokenFiles> LoadTokenFiles(const std::string& directory) {
  TokenFiles files;
  ASSIGN_OR_RETURN(files.config, TokenizerConfigFile::Load(
                                     directory + "/tokenizer_config.json"));
  RETURN_IF_ERROR(CheckConfig(files.config));
  const json::value* const listed = files.config.Find(kListedTokens);
  if (listed != nullptr && !listed->is_null()) return files;
  ASSIGN_OR_RETURN(
      files.special_map,
      TokenizerConfigFile::Load(directory + "/special_tokens_map.json"));
  RETURN_IF_ERROR(CheckNoExtraTokens(files.special_map));
  ASSIGN_OR_RETURN(files.added,
                   TokenizerConfigFile::Load(directory + "/added_tokens.json"));
  return files;
}

// The token that has the role `name`, which `otherwise` has by default.
absl::StatusOr<TokenId> FindRole(const TokenFiles& files,
                                 const std::string& name,
                                 const std::string& otherwise,
                                 const Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const auto mapped, files.special_map.Token(name));
  const TokenizerConfigFile& config = mapped ? files.special_map : files.config;
  ASSIGN_OR_RETURN(const auto given, config.Token(name));
  const std::string piece = given.value_or(otherwise);
  const bool has_size = !piece.empty() && piece.size() <= kMaxSpecialBytes;
  const auto id = has_size ? vocabulary.Find(piece) : std::nullopt;
  if (id) return *id;
  return InvalidArgument(config.path(), ": ", name,
                         " must be a token of vocab.json and have 1 to ",
                         kMaxSpecialBytes, " bytes, got ",
                         ShownInQuotes(piece));
}

absl::StatusOr<SpecialTokens> FindRoles(const TokenFiles& files,
                                        const Vocabulary& vocabulary) {
  SpecialTokens tokens;
  ASSIGN_OR_RETURN(tokens.eos,
                   FindRole(files, "eos_token", "</s>", vocabulary));
  ASSIGN_OR_RETURN(tokens.pad,
                   FindRole(files, "pad_token", "<pad>", vocabulary));
  ASSIGN_OR_RETURN(tokens.unk,
                   FindRole(files, "unk_token", "<unk>", vocabulary));
  return tokens;
}

// Checks the added tokens of added_tokens_decoder, as newer versions write
// them, and of added_tokens.json. Those that have a role are there already.
absl::Status CheckAddedTokens(const TokenFiles& files,
                              const Vocabulary& vocabulary,
                              const std::vector<TokenId>& special) {
  const auto is_role = [&](std::string_view content, std::string_view id) {
    const auto found = vocabulary.Find(content);
    return found && std::to_string(*found) == id &&
           std::ranges::find(special, *found) != special.end();
  };
  constexpr std::string_view kRule =
      " must be eos_token, pad_token or unk_token with its id in vocab.json, "
      "got ";
  for (const auto& [content, id] : files.added.object()) {
    if (id.is_int64() && is_role(content, std::to_string(id.get_int64()))) {
      continue;
    }
    return InvalidArgument(files.added.path(), ": ",
                           ShownInQuotes(std::string_view(content)), kRule,
                           Shown(&id));
  }
  const json::value* value = files.config.Find(kListedTokens);
  if (IsEmpty(value)) return absl::OkStatus();
  const std::string place = Concat(files.config.path(), ": ", kListedTokens);
  if (!value->is_object()) {
    return InvalidArgument(place, " must be an object, got ", Shown(value));
  }
  for (const auto& [id, token] : value->get_object()) {
    const json::value* content =
        token.is_object() ? token.get_object().if_contains("content") : nullptr;
    if (content != nullptr && content->is_string() &&
        is_role(content->get_string(), id)) {
      continue;
    }
    return InvalidArgument(place, "[", ShownInQuotes(std::string_view(id)), "]",
                           kRule, Shown(&token));
  }
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> LoadVocabulary(const std::string& directory) {
  const std::string path = directory + "/vocab.json";
  absl::StatusOr<Vocabulary> numbers =
      NumberedPiecesTokenizer::LoadNumbers(path);
  if (!absl::IsNotFound(numbers.status())) return numbers;
  return NumberedPiecesTokenizer::LoadList(
      directory + "/shared_vocabulary.json", "<pad>");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadMarianTokenizer(
    const std::string& directory) {
  ASSIGN_OR_RETURN(const TokenFiles files, LoadTokenFiles(directory));
  ASSIGN_OR_RETURN(auto source,
                   SentencePieceTokenizer::Load(directory + "/source.spm"));
  ASSIGN_OR_RETURN(auto target,
                   SentencePieceTokenizer::Load(directory + "/target.spm"));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, LoadVocabulary(directory));
  NumberedPiecesTokenizer::Parts parts;
  ASSIGN_OR_RETURN(parts.special_tokens, FindRoles(files, vocabulary));
  parts.special = {*parts.special_tokens.eos, *parts.special_tokens.pad,
                   *parts.special_tokens.unk};
  RETURN_IF_ERROR(CheckAddedTokens(files, vocabulary, parts.special));
  parts.after_text = {*parts.special_tokens.eos};
  // transformers uses source.spm to spell pieces, also those of translations.
  parts.spellings =
      NumberedPiecesTokenizer::Spell(vocabulary, *source, parts.special);
  return std::make_unique<NumberedPiecesTokenizer>(
      NumberedPiecesTokenizer::Files{std::move(source), std::move(target),
                                     std::move(vocabulary),
                                     /*has_marks=*/true},
      std::move(parts));
}

}  // namespace espalier
