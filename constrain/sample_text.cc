#include "constrain/sample_text.h"

#include <algorithm>
#include <vector>

namespace espalier {
namespace {

using State = ByteAutomaton::State;

// Returns one of `bytes`, each with the same probability.
uint8_t Draw(const std::vector<uint8_t>& bytes, std::mt19937_64* random) {
  return bytes[(*random)() % bytes.size()];
}

bool IsPrintable(uint8_t byte) { return byte >= ' ' && byte <= '~'; }

// Returns the bytes to draw the next one from.
std::vector<uint8_t> Choices(const ByteAutomaton& automaton, State state,
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

}  // namespace

std::string SampleText(const ByteAutomaton& automaton, int64_t max_bytes,
                       std::mt19937_64* random) {
  std::string text;
  State state = ByteAutomaton::kStart;
  while (!automaton.ends(state)) {
    const bool completes = static_cast<int64_t>(text.size()) >= max_bytes;
    if (automaton.accepts(state) && (completes || (*random)() % 4 == 0)) break;
    const uint8_t byte = Draw(Choices(automaton, state, completes), random);
    text += static_cast<char>(byte);
    state = automaton.Next(state, byte);
  }
  return text;
}

}  // namespace espalier
