// Regular expressions for generated text: a pattern compiles or is refused, and
// random texts of it match it.
#include "constrain/regex_language.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>

#include "base/check.h"
#include "base/json.h"
#include "base/status.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/sample_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

FUZZ_TARGET(regex_language, input) {
  // Few steps, because an input is to take milliseconds.
  const CompileLimits limits = {.max_states = 2'000, .max_steps = 200'000};
  const auto automaton = CompileRegex(input, RegexMatching::kWhole, limits);
  // Twice the steps: two ways, and the group and the search around it.
  const CompileLimits more = {.max_states = 4'000, .max_steps = 2'000'000};
  const auto language = CompileRegexWithCalls(input, /*max_unrolled=*/1, more);
  if (!language.ok()) CheckBadInput(language.status());
  if (!automaton.ok()) {
    CheckBadInput(automaton.status());
    return;
  }
  // It may exceed its limits alone.
  CHECK(language.ok() ||
        std::string(Message(language.status())).starts_with("it needs"))
      << input << ": " << language.status();
  const std::string group = Concat("(?:", input, ")");
  const auto grouped = CompileRegex(group, RegexMatching::kWhole, more);
  if (grouped.ok()) CHECK(*grouped == *automaton) << group;
  const auto search = CompileRegex(input, RegexMatching::kSearch, more);
  std::optional<PushdownConfigurations> counted;
  if (language.ok()) {
    if (auto* const calls = std::get_if<PushdownAutomaton>(&*language)) {
      const auto shared = std::make_shared<const PushdownAutomaton>(*calls);
      counted.emplace(shared, shared->bytes());
    } else {
      CHECK(std::get<ByteAutomaton>(*language) == *automaton) << input;
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 4; ++i) {
    const std::string text = SampleText(*automaton, 8 * i, &random);
    // It, and others that differ in a byte, have what they have with counters.
    for (size_t at = 0; counted && at <= std::min<size_t>(text.size(), 16);
         ++at) {
      std::string other = text;
      if (at > 0) other[at - 1] ^= 1;
      const auto match = counted->Match(other);
      const auto expected = automaton->Match(other);
      CHECK(match.in_language == expected.in_language) << input;
      CHECK(match.num_matched == expected.num_matched) << input;
    }
    CHECK(IsUtf8(text)) << input;
    CHECK(automaton->Match(text).in_language) << input;
    CHECK(!search.ok() || search->Match(text).in_language) << input;
  }
}

}  // namespace espalier::fuzz
