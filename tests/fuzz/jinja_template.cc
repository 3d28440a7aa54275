// Templates: rendered within their limits, or refused; marks of inputs cover
// the text, and the same inputs give the same text.
#include <chrono>
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"
#include "text/jinja/template.h"

namespace espalier::fuzz {

namespace {

const jinja::Inputs& TemplateInputs() {
  static const jinja::Inputs* const inputs = [] {
    const auto value = ParseJson(R"({
        "messages": [
          {"role": "system", "content": "Be <b>brief</b>."},
          {"role": "user", "content": " H\u00e9, \u6f22\ud83d\ude00\n"},
          {"role": "assistant", "content": null, "tool_calls": [
            {"function": {"name": "f", "arguments": {"x": 1.5}}}]}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "n": -7, "x": 0.1, "yes": true, "none": null, "s": "a,b,,c",
        "list": [3, 1, 2, [4]], "dict": {"k": "v", "l": [], "m": {}},
        "add_generation_prompt": true})");
    auto* const made = new jinja::Inputs;
    for (const auto& [name, input] : value->get_object()) {
      CHECK(made->Set({name.data(), name.size()}, input).ok());
    }
    made->SetTrusted("bos_token", "<s>");
    return made;
  }();
  return *inputs;
}

void CheckMarks(const jinja::Text& text) {
  size_t end = 0;
  for (const jinja::Text::Run& run : text.Runs()) {
    CHECK_EQ(run.begin, end);
    CHECK_LT(run.begin, run.end);
    end = run.end;
  }
  CHECK_EQ(end, text.size());
}

FUZZ_TARGET(jinja_template, input) {
  const auto parsed = jinja::Template::Parse(input);
  if (!parsed.ok()) {
    CheckBadInput(parsed.status());
    return;
  }
  jinja::RenderOptions options;
  options.limits = {.steps = 2'000,
                    .bytes = 64 << 10,
                    .steps_per_input_byte = 0,
                    .bytes_per_input_byte = 0,
                    .time = std::chrono::hours(1)};
  options.now = absl::UnixEpoch();
  const auto text = (*parsed)->Render(TemplateInputs(), options);
  const auto again = (*parsed)->Render(TemplateInputs(), options);
  CHECK(text.status() == again.status()) << again.status().ToString();
  if (!text.ok()) {
    if (text.status().code() == absl::StatusCode::kResourceExhausted) return;
    CheckBadInput(text.status());
    return;
  }
  CHECK(text->bytes() == again->bytes()) << again->bytes();
  CHECK(IsUtf8(text->bytes())) << text->bytes();
  CheckMarks(*text);
}

}  // namespace

}  // namespace espalier::fuzz
