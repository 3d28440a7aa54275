#include "text/jinja/text_operations.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/hash.h"
#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// The byte at which the last character before `end` begins.
size_t PreviousCharacter(std::string_view text, size_t end) {
  --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return end;
}

bool IsLineBreak(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
         c == 0x2028 || c == 0x2029;
}

// The parts of a text. Each costs more than its bytes, and a text may have as
// many as bytes.
class Parts {
 public:
  // Both outlive this.
  Parts(const Text& text, Budget& budget) : text_(text), budget_(budget) {}

  void Add(size_t begin, size_t size) {
    budget_.TakeSteps(1);
    budget_.TakeBytes(kBytesOfPart);
    parts_.push_back(text_.Part(begin, size));
  }
  int64_t size() const { return std::ssize(parts_); }
  void Reverse() { std::ranges::reverse(parts_); }
  std::vector<Text> Take() { return std::move(parts_); }

 private:
  static constexpr size_t kBytesOfPart = 192;

  const Text& text_;
  Budget& budget_;
  std::vector<Text> parts_;
};

void SplitAtSpaces(std::string_view bytes, int64_t max_splits, Parts* parts) {
  size_t i = LeadingSpace(bytes);
  while (i < bytes.size()) {
    if (max_splits >= 0 && parts->size() >= max_splits) {
      parts->Add(i, bytes.size() - i);
      break;
    }
    size_t end = i;
    while (end < bytes.size() && !IsSpace(FirstCodePoint(bytes.substr(end)))) {
      end += CharacterSize(bytes[end]);
    }
    parts->Add(i, end - i);
    i = end + LeadingSpace(bytes.substr(end));
  }
}

void SplitAtSpacesFromEnd(std::string_view bytes, int64_t max_splits,
                          Parts* parts) {
  size_t end = bytes.size() - TrailingSpace(bytes);
  while (end > 0) {
    if (max_splits >= 0 && parts->size() >= max_splits) {
      parts->Add(0, end);
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      const size_t previous = PreviousCharacter(bytes, begin);
      if (IsSpace(FirstCodePoint(bytes.substr(previous)))) break;
      begin = previous;
    }
    parts->Add(begin, end - begin);
    end = begin - TrailingSpace(bytes.substr(0, begin));
  }
  parts->Reverse();
}

void SplitAt(std::string_view bytes, std::string_view separator,
             int64_t max_splits, Parts* parts) {
  size_t begin = 0;
  while (max_splits < 0 || parts->size() < max_splits) {
    const size_t end = FindFirst(bytes, separator, begin);
    if (end == bytes.npos) break;
    parts->Add(begin, end - begin);
    begin = end + separator.size();
  }
  parts->Add(begin, bytes.size() - begin);
}

void SplitAtFromEnd(std::string_view bytes, std::string_view separator,
                    int64_t max_splits, Parts* parts) {
  const LastFinder finder(separator);
  size_t end = bytes.size();
  while (max_splits < 0 || parts->size() < max_splits) {
    const size_t begin = finder.Find(bytes.substr(0, end));
    if (begin == bytes.npos) break;
    parts->Add(begin + separator.size(), end - begin - separator.size());
    end = begin;
  }
  parts->Add(0, end);
  parts->Reverse();
}

using Characters = std::unordered_set<std::string_view, KeyedHash>;

Characters CharactersOf(std::string_view text) {
  Characters characters;
  for (size_t i = 0; i < text.size(); i += CharacterSize(text[i])) {
    characters.insert(text.substr(i, CharacterSize(text[i])));
  }
  return characters;
}

}  // namespace

size_t FindFirst(std::string_view text, std::string_view part, size_t begin) {
  if (begin > text.size()) return text.npos;
  if (part.empty()) return begin;
  const void* const found = memmem(text.data() + begin, text.size() - begin,
                                   part.data(), part.size());
  return found == nullptr ? text.npos
                          : static_cast<const char*>(found) - text.data();
}

LastFinder::LastFinder(std::string_view part) : part_(part) {
  const size_t size = part.size();
  borders_.resize(size);
  uint32_t border = 0;
  for (size_t i = 1; i < size; ++i) {  // bytes from the right
    const char byte = part[size - 1 - i];
    while (border > 0 && byte != part[size - 1 - border]) {
      border = borders_[border - 1];
    }
    if (byte == part[size - 1 - border]) ++border;
    borders_[i] = border;
  }
}

size_t LastFinder::Find(std::string_view text) const {
  const size_t size = part_.size();
  if (size == 0) return text.size();
  size_t matched = 0;
  for (size_t i = text.size(); i-- > 0;) {
    while (matched > 0 && text[i] != part_[size - 1 - matched]) {
      matched = borders_[matched - 1];
    }
    if (text[i] == part_[size - 1 - matched]) ++matched;
    if (matched == size) return i;
  }
  return text.npos;
}

Text Strip(const Text& text, const std::optional<std::string>& characters,
           bool at_begin, bool at_end) {
  const std::string_view bytes = text.bytes();
  const Characters dropped =
      CharactersOf(characters ? *characters : std::string_view());
  const auto is_dropped = [&](size_t i) {
    const std::string_view character = bytes.substr(i, CharacterSize(bytes[i]));
    return characters ? dropped.contains(character)
                      : IsSpace(FirstCodePoint(character));
  };
  size_t begin = 0;
  size_t end = bytes.size();
  while (at_begin && begin < end && is_dropped(begin)) {
    begin += CharacterSize(bytes[begin]);
  }
  while (at_end && end > begin) {
    const size_t previous = PreviousCharacter(bytes, end);
    if (!is_dropped(previous)) break;
    end = previous;
  }
  return text.Part(begin, end - begin);
}

Text Replace(const Text& text, std::string_view old, const Text& replacement,
             int64_t count, Budget& budget) {
  const std::string_view bytes = text.bytes();
  budget.TakeBytes(bytes.size());
  Text result;
  size_t i = 0;
  const auto add_replacement = [&] {
    budget.TakeBytes(replacement.size() + 1);
    result.Append(replacement);
    if (count > 0) --count;  // less than 0: without end
  };
  if (old.empty()) {  // stands between all characters, and at both ends
    while (count != 0 && i < bytes.size()) {
      add_replacement();
      const size_t size = CharacterSize(bytes[i]);
      result.AppendPart(text, i, size);
      i += size;
    }
    if (count != 0) add_replacement();
  }
  while (!old.empty() && count != 0) {
    const size_t found = FindFirst(bytes, old, i);
    if (found == bytes.npos) break;
    result.AppendPart(text, i, found - i);
    add_replacement();
    i = found + old.size();
  }
  result.AppendPart(text, i, bytes.size() - i);
  return result;
}

Text EscapeHtml(const Value& value, Budget& budget) {
  if (value.is_markup()) return value.text();
  constexpr std::pair<const char*, const char*> kEntities[] = {{"&", "&amp;"},
                                                               {">", "&gt;"},
                                                               {"<", "&lt;"},
                                                               {"'", "&#39;"},
                                                               {"\"", "&#34;"}};
  Text escaped;
  for (const Text::Run& run : value.text().Runs()) {
    Text text = value.text().Part(run.begin, run.end - run.begin);
    for (const auto& [character, entity] : kEntities) {
      text = Replace(text, character, Text(entity, run.is_input), -1, budget);
    }
    escaped.Append(text);
  }
  return escaped;
}

std::vector<Text> Split(const Text& text,
                        const std::optional<std::string>& separator,
                        int64_t max_splits, bool from_end, Budget& budget) {
  if (separator && separator->empty()) Fail("empty separator");
  budget.TakeBytes(2 * text.size());
  const std::string_view bytes = text.bytes();
  Parts parts(text, budget);
  if (!separator) {
    (from_end ? SplitAtSpacesFromEnd : SplitAtSpaces)(bytes, max_splits,
                                                      &parts);
  } else {
    (from_end ? SplitAtFromEnd : SplitAt)(bytes, *separator, max_splits,
                                          &parts);
  }
  return parts.Take();
}

std::vector<Text> SplitLines(const Text& text, bool keeps_ends,
                             Budget& budget) {
  const std::string_view bytes = text.bytes();
  budget.TakeBytes(2 * bytes.size());
  Parts lines(text, budget);
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const size_t size = CharacterSize(bytes[i]);
    if (!IsLineBreak(FirstCodePoint(bytes.substr(i)))) {
      i += size;
      continue;
    }
    const size_t next = bytes.substr(i).starts_with("\r\n") ? i + 2 : i + size;
    lines.Add(begin, (keeps_ends ? next : i) - begin);
    begin = i = next;
  }
  if (begin < bytes.size()) lines.Add(begin, bytes.size() - begin);
  return lines.Take();
}

bool EndsInLineBreak(std::string_view text) {
  if (text.empty() || text.back() == '\r') return false;
  return IsLineBreak(
      FirstCodePoint(text.substr(PreviousCharacter(text, text.size()))));
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = CharacterSize(text[0]);
  return ToTitleCharacter(text.substr(0, first)) + ToLower(text.substr(first));
}

std::string Title(std::string_view text) {
  std::string title;
  bool follows_letter = false;
  for (size_t i = 0; i < text.size(); i += CharacterSize(text[i])) {
    const std::string_view character = text.substr(i, CharacterSize(text[i]));
    title += follows_letter ? ToLower(character) : ToTitleCharacter(character);
    follows_letter = IsCased(character);
  }
  return title;
}

}  // namespace espalier::jinja
