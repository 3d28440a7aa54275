// JSON Schemas for generated text: one compiles or is refused, random texts of
// it are JSON, and a double complement is the same language.
#include "constrain/json_schema.h"

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/json.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/sample_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

// Nested values by calls are JSON, too, and strings with counters.
void CheckCalls(std::string_view schema, const CompileLimits& limits) {
  absl::StatusOr<GrammarLanguage> language =
      CompileJsonSchemaWithCalls(schema,
                                 {.whitespace = "[ \\n]?",
                                  .max_calls = 3,
                                  .calls_any_value = true,
                                  .max_unrolled_length = 0,
                                  .max_unrolled_least = 0,
                                  .max_unrolled_lengths = 0},
                                 limits);
  if (!language.ok()) return CheckBadInput(language.status());
  auto* const calls = std::get_if<PushdownAutomaton>(&*language);
  if (calls == nullptr) return;
  const auto automaton =
      std::make_shared<const PushdownAutomaton>(std::move(*calls));
  const PushdownConfigurations texts(automaton, automaton->bytes());
  constexpr int kManyBytes = 10'000;
  if (texts.min_bytes(PushdownConfigurations::kStart) > kManyBytes) return;
  std::mt19937_64 random(1);
  for (int i = 0; i < 4; ++i) {
    const std::optional<std::string> text = SampleText(texts, 8 * i, &random);
    if (!text) return;  // too ambiguous
    CHECK(texts.Match(*text).in_language) << schema;
    const auto value = ParseJson(*text);
    CHECK(value.ok()) << schema << value.status();
  }
}

FUZZ_TARGET(json_schema, input) {
  // Few steps, because an input is to take milliseconds.
  const CompileLimits limits = {.max_states = 5'000, .max_steps = 500'000};
  const JsonSchemaOptions options = {.max_depth = 1};
  const auto automaton = CompileJsonSchema(input, options, limits);
  if (!automaton.ok()) {
    CheckBadInput(automaton.status());
    return;
  }
  const CompileLimits more = {.max_states = 10'000, .max_steps = 2'000'000};
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // is left out
  const bool has_mark = input.starts_with(kByteOrderMark);
  const auto schema =
      ParseJson(has_mark ? input.substr(kByteOrderMark.size()) : input);
  CHECK(schema.ok()) << schema.status();
  if (schema->is_object() && !schema->as_object().contains("$schema") &&
      input.find('$') == input.npos) {
    const auto twice = CompileJsonSchema(
        json::object{{"not", {{"not", *schema}}}}, options, more);
    CHECK(!twice.ok() || *twice == *automaton) << input;
  }
  CheckCalls(input, more);
  std::mt19937_64 random(1);
  for (int i = 0; i < 4; ++i) {
    const std::string text = SampleText(*automaton, 8 * i, &random);
    CHECK(automaton->Match(text).in_language) << input;
    const auto value = ParseJson(text);
    CHECK(value.ok()) << input << value.status();
  }
}

}  // namespace espalier::fuzz
