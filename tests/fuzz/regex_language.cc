// Regular expressions for generated text: a pattern compiles or is refused, and
// random texts of it match it.
#include "constrain/regex_language.h"

#include <random>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "constrain/sample_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

FUZZ_TARGET(regex_language, input) {
  // Few steps, because an input is to take milliseconds.
  const CompileLimits limits = {.max_states = 2'000, .max_steps = 200'000};
  const auto automaton = CompileRegex(input, RegexMatching::kWhole, limits);
  if (!automaton.ok()) {
    CheckBadInput(automaton.status());
    return;
  }
  // Twice the steps: the group and the search around it take a few.
  const CompileLimits more = {.max_states = 4'000, .max_steps = 2'000'000};
  const std::string group = Concat("(?:", input, ")");
  const auto grouped = CompileRegex(group, RegexMatching::kWhole, more);
  if (grouped.ok()) CHECK(*grouped == *automaton) << group;
  const auto search = CompileRegex(input, RegexMatching::kSearch, more);
  std::mt19937_64 random(1);
  for (int i = 0; i < 4; ++i) {
    const std::string text = SampleText(*automaton, 8 * i, &random);
    CHECK(IsUtf8(text)) << input;
    CHECK(automaton->Match(text).in_language) << input;
    CHECK(!search.ok() || search->Match(text).in_language) << input;
  }
}

}  // namespace espalier::fuzz
