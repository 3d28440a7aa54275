// Errors of templates, for tests.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/jinja/template.h"

namespace espalier::jinja {

inline constexpr char kSteps[] = "takes too many steps";
inline constexpr char kMemory[] = "takes too much memory";

inline std::string Repeat(std::string_view text, int times) {
  std::string repeated;
  for (int i = 0; i < times; ++i) repeated += text;
  return repeated;
}

// Returns the error of parsing, or of rendering with one message; "no error" if
// both succeed.
inline std::string ErrorOf(const std::string& source) {
  const auto parsed = Template::Parse(source);
  if (!parsed.ok()) return Message(parsed.status());
  Inputs inputs;
  const json::value messages = {{{"role", "user"}, {"content", "Hi"}}};
  if (!inputs.Set("messages", messages).ok()) return "bad inputs";
  // The limits of steps and memory are the same on a busy machine; that of time
  // is not.
  RenderOptions options;
  options.limits.time = std::chrono::minutes(5);
  const auto text = (*parsed)->Render(inputs, options);
  return text.ok() ? "no error" : Message(text.status());
}

}  // namespace espalier::jinja
