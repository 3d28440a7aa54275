// Grammars for generated text: one compiles or is refused, and random texts of
// it are in its language.
#include "constrain/gbnf_language.h"

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/json.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/sample_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

FUZZ_TARGET(gbnf_language, input) {
  // Few steps, because an input is to take milliseconds.
  const CompileLimits limits = {.max_states = 2'000, .max_steps = 200'000};
  absl::StatusOr<GrammarLanguage> language =
      CompileGbnf(input, {.max_depth = 5}, limits);
  if (!language.ok()) {
    CheckBadInput(language.status());
    return;
  }
  std::mt19937_64 random(1);
  if (const auto* const plain = std::get_if<ByteAutomaton>(&*language)) {
    for (int i = 0; i < 4; ++i) {
      const std::string text = SampleText(*plain, 8 * i, &random);
      CHECK(IsUtf8(text)) << input;
      CHECK(plain->Match(text).in_language) << input;
    }
    return;
  }
  const auto automaton = std::make_shared<const PushdownAutomaton>(
      std::get<PushdownAutomaton>(*std::move(language)));
  const PushdownConfigurations texts(automaton, automaton->bytes());
  for (int i = 0; i < 4; ++i) {
    const std::optional<std::string> text = SampleText(texts, 8 * i, &random);
    if (!text) return;  // too ambiguous
    CHECK(IsUtf8(*text)) << input;
    CHECK(texts.Match(*text).in_language) << input;
  }
}

}  // namespace espalier::fuzz
