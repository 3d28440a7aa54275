#include "text/tokenizer/incremental_detokenizer.h"

#include <algorithm>
#include <string_view>

namespace espalier {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

// The bytes that a well-formed character may have, by its first one (The
// Unicode Standard, table 3-7). No character begins with what has size 0.
struct CharacterForm {
  size_t size;
  uint8_t min_second = 0x80;  // overlong forms and surrogates are left out
  uint8_t max_second = 0xBF;
};

CharacterForm FormOf(uint8_t first) {
  if (first < 0x80) return {1};
  if (first < 0xC2) return {0};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// True if `bytes` are a character of `form`, or a prefix of one.
// REQUIRES: bytes[0] is the first byte of the form.
bool Fits(std::string_view bytes, const CharacterForm& form) {
  if (bytes.size() > form.size) return false;
  for (size_t i = 1; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t min = i == 1 ? form.min_second : 0x80;
    const uint8_t max = i == 1 ? form.max_second : 0xBF;
    if (byte < min || byte > max) return false;
  }
  return true;
}

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer,
                                               bool is_opening,
                                               bool shows_special)
    : tokenizer_(&tokenizer),
      drops_space_(is_opening &&
                   spellings().opening_spaces() != OpeningSpaces::kKept),
      shows_special_(shows_special),
      num_bytes_(0) {}

IncrementalDetokenizer IncrementalDetokenizer::After(
    const Tokenizer& tokenizer, std::span<const TokenId> tokens,
    bool shows_special) {
  const IncrementalDetokenizer inside(tokenizer, /*is_opening=*/false,
                                      shows_special);
  size_t begin = tokens.size();
  while (begin > 0 && !inside.HidesWhatIsBefore(tokens[begin - 1])) --begin;
  if (begin > 0) --begin;
  IncrementalDetokenizer detokenizer(tokenizer, /*is_opening=*/begin == 0,
                                     shows_special);
  std::string text;
  for (; begin < tokens.size(); ++begin) detokenizer.Feed(tokens[begin], &text);
  return detokenizer;
}

bool IncrementalDetokenizer::HidesWhatIsBefore(TokenId token) const {
  if (IsShownSpecial(token)) return true;
  const TokenSpelling spelling = spellings().Of(token);
  switch (spelling.kind) {
    case SpellingKind::kOutside:
    case SpellingKind::kNothing:
      return false;
    case SpellingKind::kBytes: {
      if (spelling.text.empty()) return false;
      const auto last = static_cast<uint8_t>(spelling.text.back());
      return last < 0x80 && last != ' ';
    }
    case SpellingKind::kText:
    case SpellingKind::kSpacedText:
      return spelling.text.find_first_not_of(' ') != spelling.text.npos;
  }
  return false;
}

void IncrementalDetokenizer::Feed(TokenId token, std::string* text) {
  if (IsShownSpecial(token)) {
    Finish(text);
    drops_space_ = false;
    *text += tokenizer_->Piece(token);
    return;
  }
  const bool has_own_spelling = drops_space_ && spellings().opening_spaces() ==
                                                    OpeningSpaces::kOwnSpelling;
  const TokenSpelling spelling =
      has_own_spelling ? spellings().OpeningOf(token) : spellings().Of(token);
  if (spelling.kind == SpellingKind::kOutside) return;
  if (has_own_spelling) drops_space_ = false;
  switch (spelling.kind) {
    case SpellingKind::kOutside:
      return;
    case SpellingKind::kBytes:
      for (const char byte : spelling.text) FeedByte(byte, text);
      return;
    case SpellingKind::kNothing:
    case SpellingKind::kText:
    case SpellingKind::kSpacedText:
      FlushBytes(text);
      return FeedText(spelling, text);
  }
}

void IncrementalDetokenizer::Finish(std::string* text) {
  FlushBytes(text);
  num_spaces_ = 0;
}

void IncrementalDetokenizer::FeedByte(char byte, std::string* text) {
  if (trims_spaces() && byte == ' ') {
    FlushBytes(text);
    return FeedTrimmed(" ", text);
  }
  FlushSpaces(text);
  drops_space_ = false;  // a byte is text, if not yet
  char bytes[sizeof(bytes_) + 1];
  std::copy_n(bytes_, num_bytes_, bytes);
  bytes[num_bytes_] = byte;
  std::string_view rest(bytes, num_bytes_ + 1);
  num_bytes_ = 0;
  while (!rest.empty()) {
    const CharacterForm form = FormOf(static_cast<uint8_t>(rest.front()));
    if (!Fits(rest, form)) {
      *text += kReplacement;
      // The rest may begin a character. If each byte is replaced on its own, it
      // starts at the second byte, else at the byte that did not fit.
      const bool is_one_part =
          spellings().broken_characters() == BrokenCharacters::kEachPart;
      rest.remove_prefix(is_one_part ? std::max<size_t>(rest.size() - 1, 1)
                                     : 1);
    } else if (rest.size() == form.size) {
      *text += rest;
      return;
    } else {
      std::ranges::copy(rest, bytes_);
      num_bytes_ = static_cast<uint8_t>(rest.size());
      return;
    }
  }
}

void IncrementalDetokenizer::FlushBytes(std::string* text) {
  if (num_bytes_ == 0) return;
  // They are the beginning of one character.
  const bool is_one_part =
      spellings().broken_characters() == BrokenCharacters::kEachPart;
  for (int n = is_one_part ? 1 : num_bytes_; n > 0; --n) *text += kReplacement;
  num_bytes_ = 0;
}

void IncrementalDetokenizer::FeedText(TokenSpelling spelling,
                                      std::string* text) {
  if (trims_spaces()) return FeedTrimmed(spelling.text, text);
  if (drops_space_ && spelling.kind == SpellingKind::kSpacedText) {
    spelling.text.remove_prefix(1);
    drops_space_ = spellings().opening_spaces() == OpeningSpaces::kAllDropped;
  }
  if (!spelling.text.empty()) drops_space_ = false;
  *text += spelling.text;
}

void IncrementalDetokenizer::FeedTrimmed(std::string_view piece,
                                         std::string* text) {
  if (drops_space_) {
    piece.remove_prefix(std::min(piece.find_first_not_of(' '), piece.size()));
    if (piece.empty()) return;
    drops_space_ = false;
  }
  const size_t last = piece.find_last_not_of(' ');
  const size_t size = last == piece.npos ? 0 : last + 1;
  if (size > 0) {
    FlushSpaces(text);
    *text += piece.substr(0, size);
  }
  num_spaces_ += static_cast<uint32_t>(piece.size() - size);
}

void IncrementalDetokenizer::FlushSpaces(std::string* text) {
  text->append(num_spaces_, ' ');
  num_spaces_ = 0;
}

}  // namespace espalier
