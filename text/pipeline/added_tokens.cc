#include "text/pipeline/added_tokens.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/status.h"
#include "text/pipeline/json_fields.h"
#include "text/pipeline/unicode.h"
#include "text/pipeline/vocabulary.h"
#include "text/regex/regex.h"

namespace espalier {
namespace {

// Looking for them may take as much at each place of a text: where many begin
// alike, and so does the text.
constexpr size_t kMaxContentBytes = 256;

// Limit on the normalized contents of all added tokens together.
constexpr size_t kMaxNormalizedBytes = size_t{256} << 20;

// True for word characters, as defined by Rust's regex crate.
bool IsWordCharacter(std::string_view character) {
  static const Regex* const regex = [] {
    absl::StatusOr<Regex> compiled = Regex::CompilePcre2(
        R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])");
    CHECK(compiled.ok()) << compiled.status().ToString();
    return new Regex(*std::move(compiled));
  }();
  bool is_word = false;
  RegexBudget budget(character.size());
  CHECK(regex
            ->ForEachMatch(character, &budget,
                           [&](const Regex::Match&) { is_word = true; })
            .ok());
  return is_word;
}

// The character of `text` that ends before byte `end`.
std::string_view CharacterBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin, end - begin);
}

bool IsSpace(std::string_view character) {
  return IsWhitespace(TakeCharacter(&character));
}

absl::StatusOr<AddedToken> ReadAddedToken(const JsonFields& fields,
                                          const Normalizer& normalizer,
                                          RegexBudget* budget) {
  RETURN_IF_ERROR(fields.CheckKnown({"id", "content", "single_word", "lstrip",
                                     "rstrip", "normalized", "special"}));
  AddedToken token;
  ASSIGN_OR_RETURN(const int64_t id, fields.Integer("id"));
  if (id < 0 || id >= Vocabulary::kMaxTokens) {
    return fields.Wrong("id", Concat("in [0, ", Vocabulary::kMaxTokens, ")"));
  }
  token.id = static_cast<TokenId>(id);
  ASSIGN_OR_RETURN(token.content, fields.String("content"));
  if (token.content.empty() || token.content.size() > kMaxContentBytes) {
    return fields.Wrong(
        "content", Concat("a string of 1 to ", kMaxContentBytes, " bytes"));
  }
  ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, fields.Bool("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, fields.Bool("rstrip", false));
  ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  if (token.normalized) {
    Normalizer::Text text(token.content, budget);
    RETURN_IF_ERROR(normalizer.Apply(&text));
    token.normalized_content = std::move(text.text);
    if (token.normalized_content.size() > kMaxContentBytes) {
      return fields.Wrong("content", Concat("normalized to at most ",
                                            kMaxContentBytes, " bytes"));
    }
  }
  return token;
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Read(const json::value& value,
                                              const std::string& place,
                                              const Normalizer& normalizer,
                                              RegexBudget* budget) {
  AddedTokens added;
  if (value.is_null()) return added;
  if (!value.is_array()) {
    return InvalidArgument(place, " must be a list, got ", Shown(&value));
  }
  const json::array& list = value.get_array();
  added.tokens_.reserve(list.size());
  size_t normalized_bytes = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(const JsonFields fields,
                     JsonFields::OfItem(list, i, place));
    ASSIGN_OR_RETURN(AddedToken token,
                     ReadAddedToken(fields, normalizer, budget));
    normalized_bytes += token.normalized_content.size();
    if (normalized_bytes > kMaxNormalizedBytes) {
      return InvalidArgument(place, " must be normalized to at most ",
                             kMaxNormalizedBytes, " bytes, got more by ", place,
                             "[", i, "]");
    }
    added.tokens_.push_back(std::move(token));
  }
  std::ranges::sort(added.tokens_, {}, &AddedToken::id);
  std::map<std::string_view, const AddedToken*> verbatim, normalized;
  const AddedToken* before = nullptr;
  for (const AddedToken& token : added.tokens_) {
    if (before != nullptr && before->id == token.id) {
      return InvalidArgument(place, ": id ", token.id, " is that of ",
                             ShownInQuotes(before->content), " and of ",
                             ShownInQuotes(token.content));
    }
    before = &token;
    auto& side = token.normalized ? normalized : verbatim;
    if (!token.spelt().empty()) side.try_emplace(token.spelt(), &token);
  }
  const auto matcher_of = [](const auto& side) {
    std::vector<std::pair<std::string, TokenId>> pieces;
    for (const auto& [piece, token] : side) {
      pieces.emplace_back(piece, token->id);
    }
    return PieceMatcher(std::move(pieces));
  };
  added.verbatim_ = matcher_of(verbatim);
  added.normalized_ = matcher_of(normalized);
  return added;
}

const AddedToken* AddedTokens::Find(TokenId id) const {
  const auto found = std::ranges::lower_bound(tokens_, id, {}, &AddedToken::id);
  return found == tokens_.end() || found->id != id ? nullptr : &*found;
}

bool AddedTokens::StandsAlone(const AddedToken& token, std::string_view text,
                              size_t begin, size_t end) {
  if (!token.single_word) return true;
  if (begin > 0 && IsWordCharacter(CharacterBefore(text, begin))) return false;
  return end == text.size() ||
         !IsWordCharacter(text.substr(end, CharacterSize(text[end])));
}

void AddedTokens::Widen(const AddedToken& token, std::string_view text,
                        size_t done, size_t* begin, size_t* end,
                        size_t* widened) {
  while (token.lstrip && *begin > done) {
    const std::string_view character = CharacterBefore(text, *begin);
    if (!IsSpace(character)) break;
    *begin -= character.size();
  }
  if (!token.rstrip) return;
  *end = std::max(*end, *widened);
  while (*end < text.size()) {
    const size_t size = CharacterSize(text[*end]);
    if (!IsSpace(text.substr(*end, size))) break;
    *end += size;
  }
  *widened = *end;
}

}  // namespace espalier
