// Renders what JSON lines say: {"template": SOURCE} parses a template, and
// {"inputs": {...}, "now": SECONDS} renders it; one line in, one line out,
// {"text": ...} or {"error": ...}. For jinja2_test.py, which compares that with
// what jinja2 gives.
//
//   render_templates [HEADROOM]
//
// With HEADROOM a rendering may take that part of its budget alone.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "text/jinja/template.h"

namespace espalier::jinja {
namespace {

class Renderer {
 public:
  explicit Renderer(int64_t headroom) : headroom_(headroom) {}

  json::object Answer(const json::object& line) {
    if (const json::value* const source = line.if_contains("template")) {
      auto parsed = Template::Parse(std::string(source->get_string()));
      if (!parsed.ok()) {
        template_ = nullptr;
        error_ = parsed.status();
        return {{"error", Message(error_)}};
      }
      template_ = *std::move(parsed);
      return {};
    }
    if (template_ == nullptr) return {{"error", Message(error_)}};
    return Render(line);
  }

 private:
  json::object Render(const json::object& line) const {
    Inputs inputs;
    for (const auto& [name, value] : line.at("inputs").get_object()) {
      const absl::Status status = inputs.Set(std::string(name), value);
      if (!status.ok()) return {{"error", Message(status)}};
    }
    RenderOptions options;
    RenderLimits& limits = options.limits;
    for (int64_t* const limit :
         {&limits.steps, &limits.bytes, &limits.steps_per_input_byte,
          &limits.bytes_per_input_byte}) {
      *limit /= headroom_;
    }
    options.now = absl::FromUnixSeconds(line.at("now").to_number<int64_t>());
    const absl::StatusOr<Text> text = template_->Render(inputs, options);
    if (!text.ok()) return {{"error", Message(text.status())}};
    return {{"text", text->bytes()}};
  }

  const int64_t headroom_;
  std::unique_ptr<Template> template_;
  absl::Status error_;
};

}  // namespace
}  // namespace espalier::jinja

int main(int argc, char** argv) {
  espalier::jinja::Renderer renderer(argc > 1 ? std::atoi(argv[1]) : 1);
  for (std::string line; std::getline(std::cin, line);) {
    const auto value = espalier::ParseJson(line);
    if (!value.ok()) {
      std::cerr << value.status().message() << "\n";
      return 1;
    }
    std::cout << espalier::WriteJson(renderer.Answer(value->get_object()))
              << std::endl;
  }
}
