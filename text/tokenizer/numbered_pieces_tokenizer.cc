#include "text/tokenizer/numbered_pieces_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr size_t kMaxVocabularyBytes = size_t{64} << 20;
constexpr int kNoLimit = std::numeric_limits<int>::max();

bool IsLanguage(std::string_view piece) {
  return piece.size() > 4 && piece.starts_with(">>") && piece.ends_with("<<");
}

}  // namespace

absl::StatusOr<Vocabulary> NumberedPiecesTokenizer::LoadNumbers(
    const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxVocabularyBytes));
  const absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_object()) {
    return InvalidArgument(path, " must hold an object, got ", Shown(&*value));
  }
  return Vocabulary::Read(value->get_object(), path);
}

absl::StatusOr<Vocabulary> NumberedPiecesTokenizer::LoadList(
    const std::string& path, std::string_view last) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxVocabularyBytes));
  const absl::StatusOr<json::value> value = ParseJson(text);
  if (!value.ok()) return Annotate(value.status(), path);
  if (!value->is_array()) {
    return InvalidArgument(path, " must hold a list, got ", Shown(&*value));
  }
  json::object numbers;
  const auto add = [&](std::string_view piece) {
    return numbers.emplace(piece, static_cast<int64_t>(numbers.size())).second;
  };
  for (const json::value& piece : value->get_array()) {
    if (piece.is_string() && add(piece.get_string())) continue;
    return InvalidArgument(path, ": token ", numbers.size(),
                           " must be a string that no other has, got ",
                           Shown(&piece));
  }
  add(last);
  return Vocabulary::Read(numbers, path);
}

TokenSpellings NumberedPiecesTokenizer::Spell(
    const Vocabulary& vocabulary, const SentencePieceTokenizer& pieces,
    std::span<const TokenId> special) {
  TokenSpellings spellings;
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    const bool is_text = vocabulary.Has(token) &&
                         std::ranges::find(special, token) == special.end();
    if (!is_text) {
      spellings.Add(SpellingKind::kOutside, "");
    } else {
      pieces.AddSpellingOf(vocabulary.Piece(token), &spellings);
    }
  }
  spellings.set_opening_spaces(OpeningSpaces::kTrimmed);
  return spellings;
}

NumberedPiecesTokenizer::NumberedPiecesTokenizer(Files files, Parts parts)
    : Tokenizer(std::move(parts)), files_(std::move(files)) {
  std::vector<std::pair<std::string, TokenId>> specials;
  for (TokenId token = 0; token < vocab_size(); ++token) {
    if (is_special(token)) specials.emplace_back(Piece(token), token);
  }
  specials_ = PieceMatcher(std::move(specials));
}

NumberedPiecesTokenizer::~NumberedPiecesTokenizer() = default;

TokenId NumberedPiecesTokenizer::IdOf(std::string_view piece) const {
  return files_.vocabulary.Find(piece).value_or(*special_tokens().unk);
}

absl::Status NumberedPiecesTokenizer::EncodePlain(
    const SentencePieceTokenizer& pieces, std::string_view text, int max_tokens,
    std::vector<TokenId>* tokens) const {
  if (files_.has_marks && text.starts_with(">>")) {
    const size_t end = text.find("<<");
    if (end != std::string_view::npos) {
      tokens->push_back(IdOf(text.substr(0, end + 2)));
      text.remove_prefix(end + 2);
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> found,
                   pieces.EncodeAsPieces(text, max_tokens));
  for (const std::string& piece : found) tokens->push_back(IdOf(piece));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> NumberedPiecesTokenizer::EncodeText(
    std::string_view text, bool parse_special) const {
  return EncodeText(text, parse_special, kNoLimit);
}

absl::StatusOr<std::vector<TokenId>> NumberedPiecesTokenizer::EncodeText(
    std::string_view text, bool parse_special, int max_tokens) const {
  const SentencePieceTokenizer& source = *files_.source;
  std::vector<TokenId> tokens;
  size_t begin = 0;
  for (size_t i = 0; parse_special && i < text.size();) {
    const auto special = specials_.At(text, i);
    if (!special) {
      ++i;
      continue;
    }
    if (i > begin) {
      RETURN_IF_ERROR(EncodePlain(source, text.substr(begin, i - begin),
                                  max_tokens, &tokens));
    }
    tokens.push_back(special->token);
    begin = i += special->size;
  }
  if (begin < text.size()) {
    RETURN_IF_ERROR(
        EncodePlain(source, text.substr(begin), max_tokens, &tokens));
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenId>> NumberedPiecesTokenizer::EncodeOutputText(
    std::string_view text) const {
  std::vector<TokenId> tokens;
  RETURN_IF_ERROR(EncodePlain(files_.target ? *files_.target : *files_.source,
                              text, kNoLimit, &tokens));
  return tokens;
}

bool NumberedPiecesTokenizer::IsAdded(TokenId token) const {
  return files_.has_marks && IsLanguage(files_.vocabulary.Piece(token));
}

std::optional<TokenId> NumberedPiecesTokenizer::PieceToId(
    std::string_view piece) const {
  return files_.vocabulary.Find(piece);
}

std::string NumberedPiecesTokenizer::Piece(TokenId token) const {
  return std::string(files_.vocabulary.Piece(token));
}

}  // namespace espalier
