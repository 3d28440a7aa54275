#include "constrain/json_whitespace.h"

#include <cstdint>

#include "base/shown_bytes.h"
#include "base/status.h"
#include "constrain/compile_budget.h"
#include "constrain/regex_language.h"

namespace espalier {
namespace {

constexpr CompileLimits kWhitespaceLimits = {.max_states = 1024,
                                             .max_steps = 1'000'000};

bool IsJsonWhitespace(uint8_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

}  // namespace

absl::StatusOr<ByteAutomaton> CompileJsonWhitespace(std::string_view pattern) {
  ASSIGN_OR_RETURN(
      ByteAutomaton automaton,
      CompileRegex(pattern, RegexMatching::kWhole, kWhitespaceLimits));
  for (ByteAutomaton::State s = 0; s < automaton.num_states(); ++s) {
    for (const uint8_t byte : automaton.BytesAfter(s)) {
      if (IsJsonWhitespace(byte)) continue;
      const char shown = static_cast<char>(byte);
      return InvalidArgument(
          "a text that it matches has ", BytesInQuotes({&shown, 1}),
          ", but between its parts JSON has space, \\t, \\n and \\r alone");
    }
  }
  return automaton;
}

}  // namespace espalier
