// SampleText: a random text of a language.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "constrain/byte_automaton.h"
#include "constrain/pushdown_configurations.h"

namespace espalier {

// Draws a text: at each byte one that may follow, printable ASCII if any is.
// From `complete_after` bytes on the text is completed by the fewest bytes.
std::string SampleText(const ByteAutomaton& automaton, int64_t complete_after,
                       std::mt19937_64* random);
// As above; nullopt where the language becomes too ambiguous.
std::optional<std::string> SampleText(
    const PushdownConfigurations& configurations, int64_t complete_after,
    std::mt19937_64* random);

// As SampleText; nullopt, too, for a text that would have more than
// `max_bytes` bytes, however it is completed.
std::optional<std::string> SampleShortText(const ByteAutomaton& automaton,
                                           int64_t complete_after,
                                           int64_t max_bytes,
                                           std::mt19937_64* random);
std::optional<std::string> SampleShortText(
    const PushdownConfigurations& configurations, int64_t complete_after,
    int64_t max_bytes, std::mt19937_64* random);

}  // namespace espalier
