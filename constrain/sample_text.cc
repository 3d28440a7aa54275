#include "constrain/sample_text.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace espalier {
namespace {

constexpr int64_t kAnyLength = std::numeric_limits<int64_t>::max();

// Returns one of `bytes`, each with the same probability.
uint8_t Draw(const std::vector<uint8_t>& bytes, std::mt19937_64* random) {
  return bytes[(*random)() % bytes.size()];
}

bool IsPrintable(uint8_t byte) { return byte >= ' ' && byte <= '~'; }

// Returns the bytes to draw the next one from.
template <typename Automaton>
std::vector<uint8_t> Choices(const Automaton& automaton, int32_t state,
                             bool completes) {
  std::vector<uint8_t> bytes = automaton.BytesAfter(state);
  if (completes) {
    std::erase_if(bytes, [&](uint8_t byte) {
      return automaton.min_bytes(automaton.Next(state, byte)) >=
             automaton.min_bytes(state);
    });
  }
  if (std::any_of(bytes.begin(), bytes.end(), IsPrintable)) {
    std::erase_if(bytes, [](uint8_t byte) { return !IsPrintable(byte); });
  }
  return bytes;
}

template <typename Automaton>
std::optional<std::string> Sample(const Automaton& automaton,
                                  int64_t complete_after, int64_t max_bytes,
                                  std::mt19937_64* random) {
  std::string text;
  int32_t state = Automaton::kStart;
  while (!automaton.ends(state)) {
    if (std::ssize(text) + automaton.min_bytes(state) > max_bytes) {
      return std::nullopt;
    }
    const bool completes = static_cast<int64_t>(text.size()) >= complete_after;
    if (automaton.accepts(state) && (completes || (*random)() % 4 == 0)) break;
    const std::vector<uint8_t> bytes = Choices(automaton, state, completes);
    if (bytes.empty()) return std::nullopt;
    const uint8_t byte = Draw(bytes, random);
    text += static_cast<char>(byte);
    state = automaton.Next(state, byte);
  }
  return text;
}

}  // namespace

std::string SampleText(const ByteAutomaton& automaton, int64_t complete_after,
                       std::mt19937_64* random) {
  return *Sample(automaton, complete_after, kAnyLength, random);
}

std::optional<std::string> SampleText(
    const PushdownConfigurations& configurations, int64_t complete_after,
    std::mt19937_64* random) {
  return Sample(configurations, complete_after, kAnyLength, random);
}

std::optional<std::string> SampleShortText(const ByteAutomaton& automaton,
                                           int64_t complete_after,
                                           int64_t max_bytes,
                                           std::mt19937_64* random) {
  return Sample(automaton, complete_after, max_bytes, random);
}

std::optional<std::string> SampleShortText(
    const PushdownConfigurations& configurations, int64_t complete_after,
    int64_t max_bytes, std::mt19937_64* random) {
  return Sample(configurations, complete_after, max_bytes, random);
}

}  // namespace espalier
