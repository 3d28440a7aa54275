#include "text/sentences.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

using namespace std::string_view_literals;

// Sorted. Without their full stop; they end no sentence before whatever word.
constexpr std::array kAbbreviations = {
    "Adm"sv,   "Capt"sv,   "Cmdr"sv, "Col"sv,  "Cpl"sv,    "DR"sv,   "Dipl"sv,
    "Dott"sv,  "Dr"sv,     "Dra"sv,  "Dña"sv,  "Frl"sv,    "Gen"sv,  "Gov"sv,
    "Hon"sv,   "Hr"sv,     "Hrn"sv,  "Ing"sv,  "Lt"sv,     "MM"sv,   "MR"sv,
    "MRS"sv,   "MS"sv,     "Mag"sv,  "Maj"sv,  "Messrs"sv, "Mgr"sv,  "Mlle"sv,
    "Mlles"sv, "Mme"sv,    "Mmes"sv, "Mr"sv,   "Mrs"sv,    "Ms"sv,   "Mt"sv,
    "Mx"sv,    "PROF"sv,   "Pres"sv, "Prof"sv, "Rep"sv,    "Rev"sv,  "Sen"sv,
    "Sgt"sv,   "Sig"sv,    "Sr"sv,   "Sra"sv,  "Srta"sv,   "St"sv,   "Ste"sv,
    "Vgl"sv,   "approx"sv, "bspw"sv, "bzw"sv,  "ca"sv,     "cf"sv,   "d.h"sv,
    "e.g"sv,   "evtl"sv,   "ggf"sv,  "i.e"sv,  "n.Chr"sv,  "p.ej"sv, "p.ex"sv,
    "u.a"sv,   "v.Chr"sv,  "vgl"sv,  "viz"sv,  "vs"sv,     "z.B"sv};

// Sorted. They end no sentence before a number.
constexpr std::array kBeforeNumbers = {
    "Abb"sv, "Apr"sv,  "Art"sv,  "Aug"sv, "Bd"sv,  "Ch"sv,  "Dec"sv,
    "Feb"sv, "Fig"sv,  "Figs"sv, "Jan"sv, "Jul"sv, "Jun"sv, "Kap"sv,
    "Mar"sv, "No"sv,   "Nos"sv,  "Nov"sv, "Nr"sv,  "Oct"sv, "S"sv,
    "Sec"sv, "Sep"sv,  "Sept"sv, "Tab"sv, "Vol"sv, "ch"sv,  "eq"sv,
    "fig"sv, "figs"sv, "n"sv,    "nr"sv,  "p"sv,   "pp"sv,  "vol"sv};

// Sorted. What follows an ordinal in German.
constexpr std::array kMonths = {"April"sv,    "August"sv,  "Dezember"sv,
                                "Februar"sv,  "Januar"sv,  "Juli"sv,
                                "Juni"sv,     "Mai"sv,     "März"sv,
                                "November"sv, "Oktober"sv, "September"sv};

// Sorted. Words that begin a sentence after initials, which names follow.
constexpr std::array kOpeningWords = {"But"sv,  "He"sv,   "It"sv,    "She"sv,
                                      "That"sv, "The"sv,  "They"sv,  "This"sv,
                                      "We"sv,   "What"sv, "Where"sv, "You"sv};

static_assert(std::ranges::is_sorted(kAbbreviations));
static_assert(std::ranges::is_sorted(kBeforeNumbers));
static_assert(std::ranges::is_sorted(kMonths));
static_assert(std::ranges::is_sorted(kOpeningWords));

template <size_t kSize>
bool Has(const std::array<std::string_view, kSize>& sorted,
         std::string_view word) {
  return std::ranges::binary_search(sorted, word);
}

bool IsLineBreak(char32_t c) {
  return c == '\n' || c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// U+2026 is not in the annex: here it is a row of full stops.
bool IsFullStop(char32_t c) {
  return c == '.' || c == 0x2024 || c == 0x2026 || c == 0xFE52;
}

// Needs no white space behind it.
bool IsWideEnd(char32_t c) {
  return c == 0x3002 || c == 0xFF01 || c == 0xFF0E || c == 0xFF1F ||
         c == 0xFF61;
}

bool IsOtherEnd(char32_t c) {
  constexpr std::u32string_view kEnds =
      U"!?\u203C\u203D\u2047\u2048\u2049\u0589\u061F\u06D4\u0964\u0965"
      U"\u104A\u104B\u1362\u1367\u1368\u17D4\u17D5";
  return kEnds.find(c) != kEnds.npos;
}

bool IsEnd(char32_t c) {
  return IsFullStop(c) || IsWideEnd(c) || IsOtherEnd(c);
}

bool IsQuote(char32_t c) { return c == '"' || c == '\''; }

// Marks that belong to the sentence that ends before them.
bool IsClosing(char32_t c) {
  constexpr std::u32string_view kLow9 = U"\u201C\u2018\u00AB\u2039";
  return IsQuote(c) || IsClosingPunctuation(c) || kLow9.find(c) != kLow9.npos;
}

bool IsDash(char32_t c) { return c == '-' || (c >= 0x2010 && c <= 0x2015); }

// Marks after which the sentence continues past its full stop.
bool ContinuesSentence(char32_t c) {
  constexpr std::u32string_view kMarks = U",:;\u3001\uFF0C\uFF1A\uFF1B";
  return kMarks.find(c) != kMarks.npos || IsEnd(c);
}

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  std::vector<Sentence> Split(size_t max_sentences);

 private:
  // The terminators at a place, with what closes quotations behind them.
  struct End {
    size_t size = 0;
    bool is_wide = false;
    bool is_full_stops = true;
    bool is_closed = false;
  };
  struct Character {
    char32_t value;
    size_t size;
  };

  std::optional<Character> At(size_t place) const;
  size_t SkipSpaces(size_t place) const;
  End ReadEnd(size_t place) const;
  // True if the sentence ends with `end` at `place`.
  bool IsBreak(size_t place, const End& end) const;
  bool IsAbbreviation(size_t place, std::string_view next) const;
  // The first word from `place` on, behind quotation marks and the like: up to
  // white space or a mark.
  std::string_view WordFrom(size_t place) const;
  // The word that ends at `place`.
  std::string_view WordBefore(size_t place) const;
  void Finish();

  const std::string_view text_;
  std::vector<Sentence> sentences_;
  // Start of the sentence; unset between two.
  std::optional<size_t> begin_;
  // End of its last character that is not white space.
  size_t end_ = 0;
  bool has_letter_ = false;  // in the sentence
};

std::optional<Splitter::Character> Splitter::At(size_t place) const {
  if (place >= text_.size()) return std::nullopt;
  std::string_view rest = text_.substr(place);
  const char32_t value = TakeCharacter(&rest);
  return Character{value, text_.size() - place - rest.size()};
}

// Up to a line break.
size_t Splitter::SkipSpaces(size_t place) const {
  for (auto c = At(place);
       c && IsWhitespace(c->value) && !IsLineBreak(c->value); c = At(place)) {
    place += c->size;
  }
  return place;
}

Splitter::End Splitter::ReadEnd(size_t place) const {
  End end;
  size_t at = place;
  for (auto c = At(at); c && IsEnd(c->value); c = At(at)) {
    end.is_wide = IsWideEnd(c->value);
    end.is_full_stops &= IsFullStop(c->value);
    at += c->size;
  }
  while (true) {
    const auto c = At(at);
    if (c && IsClosing(c->value)) {
      end.is_closed = true;
      at += c->size;
      continue;
    }
    // French sets a space before »; where a word follows, it opens.
    const size_t behind = SkipSpaces(at);
    const auto mark = At(behind);
    const bool is_guillemet =
        behind > at && mark && (mark->value == 0xBB || mark->value == 0x203A);
    if (!is_guillemet) break;
    const auto next = At(behind + mark->size);
    if (next && !IsWhitespace(next->value)) break;
    end.is_closed = true;
    at = behind + mark->size;
  }
  end.size = at - place;
  return end;
}

std::string_view Splitter::WordFrom(size_t place) const {
  auto c = At(place);
  while (c && !IsLetter(c->value) && !IsNumeric(c->value) &&
         !IsLineBreak(c->value) && !IsEnd(c->value)) {
    place += c->size;
    c = At(place);
  }
  const size_t begin = place;
  while (c && (IsLetter(c->value) || IsNumeric(c->value) || IsMark(c->value))) {
    place += c->size;
    c = At(place);
  }
  return text_.substr(begin, place - begin);
}

std::string_view Splitter::WordBefore(size_t place) const {
  size_t begin = place;
  while (begin > *begin_) {
    size_t before = begin - 1;
    while ((static_cast<unsigned char>(text_[before]) & 0xC0) == 0x80) --before;
    const char32_t c = At(before)->value;
    const bool is_of_word =
        IsLetter(c) || IsNumeric(c) || IsMark(c) || c == '.';
    if (!is_of_word) break;
    begin = before;
  }
  return text_.substr(begin, place - begin);
}

bool Splitter::IsAbbreviation(size_t place, std::string_view next) const {
  const std::string_view word = WordBefore(place);
  if (word.empty() || next.empty()) return false;
  if (Has(kAbbreviations, word)) return true;
  std::string_view rest = next;
  const bool is_number = IsNumeric(TakeCharacter(&rest));
  if (is_number) return Has(kBeforeNumbers, word);
  const bool is_ordinal =
      std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
  if (is_ordinal) return Has(kMonths, next);
  // "J", "U.S"
  const size_t dot = word.rfind('.');
  rest = dot == word.npos ? word : word.substr(dot + 1);
  if (rest.empty()) return false;
  const bool is_upper = IsUppercaseLetter(TakeCharacter(&rest));
  if (!rest.empty()) return false;
  if (is_upper) return !Has(kOpeningWords, next);
  // "z. B.", of one letter each
  const auto after = At(next.data() + next.size() - text_.data());
  rest = next;
  TakeCharacter(&rest);
  return rest.empty() && after && after->value == '.';
}

bool Splitter::IsBreak(size_t place, const End& end) const {
  const size_t behind = place + end.size;
  const size_t next_place = SkipSpaces(behind);
  const auto next = At(next_place);
  if (!next || IsLineBreak(next->value)) return false;  // it ends anyway
  if (!has_letter_) return false;
  if (next_place == behind && !end.is_wide) return false;
  if (ContinuesSentence(next->value)) return false;
  const std::string_view word = WordFrom(next_place);
  std::string_view rest = word;
  const bool is_lower =
      !word.empty() && IsLowercaseLetter(TakeCharacter(&rest));
  if (is_lower && (end.is_full_stops || end.is_closed)) return false;
  if (IsDash(next->value) && is_lower) return false;
  return !(text_.substr(place, end.size) == "." && IsAbbreviation(place, word));
}

void Splitter::Finish() {
  if (!begin_) return;
  if (!sentences_.empty()) {
    Sentence& last = sentences_.back();
    const size_t last_end = last.text.data() + last.text.size() - text_.data();
    last.after = text_.substr(last_end, *begin_ - last_end);
  }
  sentences_.push_back({text_.substr(*begin_, end_ - *begin_), ""});
  begin_.reset();
  has_letter_ = false;
}

std::vector<Sentence> Splitter::Split(size_t max_sentences) {
  for (size_t place = 0;
       place < text_.size() && sentences_.size() < max_sentences;) {
    const Character c = *At(place);
    if (IsWhitespace(c.value)) {
      if (IsLineBreak(c.value)) Finish();
      place += c.size;
      continue;
    }
    if (!begin_) begin_ = place;
    if (!IsEnd(c.value)) {
      has_letter_ |= IsLetter(c.value);
      place += c.size;
      end_ = place;
      continue;
    }
    const End end = ReadEnd(place);
    const bool is_break = IsBreak(place, end);
    place += end.size;
    end_ = place;
    if (is_break) Finish();
  }
  if (sentences_.size() < max_sentences) Finish();
  return std::move(sentences_);
}

}  // namespace

std::vector<Sentence> SplitSentences(std::string_view text,
                                     size_t max_sentences) {
  return Splitter(text).Split(max_sentences);
}

}  // namespace espalier
