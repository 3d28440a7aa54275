#include "text/pipeline/charsmap.h"

#include <cstring>

#include "base/json.h"
#include "base/status.h"
#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

// Clusters of more bytes are read character by character.
constexpr size_t kLongestCluster = 5;

// A unit of the double array.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t LeafValue(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xFF); }
uint32_t Offset(uint32_t unit) {
  return (unit >> 10) << ((unit & (uint32_t{1} << 9)) >> 6);
}

uint32_t Word(const char* bytes) {
  uint32_t word = 0;
  for (int i = 3; i >= 0; --i) {
    word = word << 8 | static_cast<uint8_t>(bytes[i]);
  }
  return word;
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Create(std::string_view map) {
  if (map.size() < sizeof(uint32_t)) {
    return InvalidArgument("a map of ", map.size(), " bytes");
  }
  const size_t trie_bytes = Word(map.data());
  map.remove_prefix(sizeof(uint32_t));
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 ||
      trie_bytes > map.size()) {
    return InvalidArgument("a trie of ", trie_bytes, " bytes in a map of ",
                           map.size());
  }
  Charsmap charsmap;
  for (size_t i = 0; i < trie_bytes; i += sizeof(uint32_t)) {
    charsmap.units_.push_back(Word(map.data() + i));
  }
  charsmap.results_ = map.substr(trie_bytes);
  if (charsmap.results_.empty() || charsmap.results_.back() != '\0') {
    return InvalidArgument("the last result has no end");
  }
  if (!IsUtf8(charsmap.results_)) {
    return InvalidArgument("the results are not UTF-8");
  }
  return charsmap;
}

std::optional<std::string_view> Charsmap::Find(std::string_view text) const {
  size_t at = Offset(units_[0]);
  for (const char byte : text) {
    if (byte == '\0') return std::nullopt;
    at ^= static_cast<uint8_t>(byte);
    if (at >= units_.size()) return std::nullopt;
    const uint32_t unit = units_[at];
    if (Label(unit) != static_cast<uint8_t>(byte)) return std::nullopt;
    at ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    if (at >= units_.size()) return std::nullopt;
    const size_t begin = LeafValue(units_[at]);
    // Results are checked to be characters; a place inside one is of none.
    const bool is_place =
        begin < results_.size() &&
        (static_cast<uint8_t>(results_[begin]) & 0xC0) != 0x80;
    if (!is_place) return std::nullopt;
    return std::string_view(results_.data() + begin);
  }
  return std::nullopt;
}

void Charsmap::AppendGrapheme(std::string_view grapheme,
                              std::string* out) const {
  if (grapheme.size() <= kLongestCluster) {
    if (const auto result = Find(grapheme)) {
      *out += *result;
      return;
    }
  }
  while (!grapheme.empty()) {
    const size_t size = CharacterSize(grapheme.front());
    const std::string_view character = grapheme.substr(0, size);
    *out += Find(character).value_or(character);
    grapheme.remove_prefix(size);
  }
}

std::string Charsmap::Apply(std::string_view text, size_t max_bytes,
                            size_t* first_bytes) const {
  std::string out;
  out.reserve(text.size());
  bool is_first = true;
  while (!text.empty() && out.size() <= max_bytes) {
    const bool is_alone =
        static_cast<uint8_t>(text[0]) < 0x80 && text[0] != '\r' &&
        (text.size() == 1 || static_cast<uint8_t>(text[1]) < 0x80);
    const size_t size = is_alone ? 1 : GraphemeSize(text);
    AppendGrapheme(text.substr(0, size), &out);
    if (is_first) *first_bytes = out.size();
    is_first = false;
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace espalier
