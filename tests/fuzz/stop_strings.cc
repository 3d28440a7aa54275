// Stop strings: text in pieces ends where the whole does, and that is at the
// first end of any stop in it.
#include "text/stop_strings.h"

#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

// End of a text.
struct TextEnd {
  std::string text;
  std::optional<int> stop_idx;
  size_t consumed_bytes = 0;

  bool operator==(const TextEnd&) const = default;
};

size_t CharacterEnd(std::string_view text, size_t begin) {
  size_t end = begin + 1;
  while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
  return end;
}

// Feeds `text` in pieces of equal numbers of characters.
TextEnd FeedCharacters(const StopStrings& stops, bool include_stop,
                       std::string_view text, size_t num_characters) {
  StopMatcher matcher(stops, include_stop);
  TextEnd result;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    for (size_t i = 0; i < num_characters && end < text.size(); ++i) {
      end = CharacterEnd(text, end);
    }
    const TextPiece piece = matcher.Feed(text.substr(begin, end - begin));
    CHECK(IsUtf8(piece.text)) << piece.text;
    result.text += piece.text;
    result.consumed_bytes += piece.consumed_bytes;
    if (piece.stop_idx) result.stop_idx = piece.stop_idx;
    begin = end;
  }
  result.text += matcher.Finish();
  CHECK_EQ(matcher.stopped(), result.stop_idx.has_value());
  return result;
}

// By looking for every stop after every byte.
TextEnd SlowTextEnd(const std::vector<std::string>& stops, bool include_stop,
                    std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string_view so_far = text.substr(0, end);
    std::optional<int> found;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (so_far.ends_with(stops[i]) &&
          (!found || stops[i].size() > stops[*found].size())) {
        found = static_cast<int>(i);
      }
    }
    if (!found) continue;
    const size_t num_cut = include_stop ? 0 : stops[*found].size();
    return {std::string(so_far.substr(0, end - num_cut)), found, end};
  }
  return {std::string(text), std::nullopt, text.size()};
}

// Lines up to an empty one are the stops; the rest is the text.
FUZZ_TARGET(stop_strings, input) {
  const size_t choice = TakeChoice(&input);
  const bool include_stop = choice % 2 == 1;
  const size_t num_characters = 1 + choice / 2 % 8;
  std::vector<std::string> strings;
  while (!input.empty() && input.front() != '\n') {
    strings.emplace_back(input.substr(0, input.find('\n')));
    input.remove_prefix(std::min(strings.back().size() + 1, input.size()));
  }
  const auto stops = StopStrings::Create(strings);
  CHECK(stops.status() == StopStrings::Check(strings));
  if (!stops.ok()) {
    CheckBadInput(stops.status());
    return;
  }
  if (!input.empty()) input.remove_prefix(1);
  if (!IsUtf8(input)) return;
  const TextEnd whole =
      FeedCharacters(*stops, include_stop, input, input.size());
  CHECK(whole == SlowTextEnd(stops->stops(), include_stop, input)) << input;
  CHECK(whole == FeedCharacters(*stops, include_stop, input, num_characters))
      << input;
}

}  // namespace

}  // namespace espalier::fuzz
