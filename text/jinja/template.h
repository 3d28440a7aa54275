// Template: a Jinja template as models bring it for their chats, with jinja2's
// meaning under the settings of transformers (trim_blocks, lstrip_blocks, the
// immutable sandbox, break and continue, {% generation %}, tojson without HTML
// escapes, raise_exception, strftime_now). docs/chat.md lists what there is.
//
// A template comes from a file that need not be trusted: what it may cost is
// bounded (limits.h), and it reads nothing but its inputs and the clock.
//
//   ASSIGN_OR_RETURN(const auto greeting, Template::Parse("Hi {{ name }}!"));
//   Inputs inputs;
//   inputs.Set("name", json::value("Ada"));
//   ASSIGN_OR_RETURN(const Text text, greeting->Render(inputs));
//   // text.bytes() is "Hi Ada!", of which "Ada" is an input
//
// Thread safety: constant once parsed; any thread may render.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/json.h"
#include "text/jinja/limits.h"
#include "text/jinja/text.h"

namespace espalier::jinja {

struct Dict;

// True if a string in a JSON value counts as written by the template, not by an
// input: `key` is the key of the string in its object, or empty.
using IsTrusted =
    absl::FunctionRef<bool(std::string_view key, std::string_view text)>;

// Variables of a rendering, by name.
class Inputs {
 public:
  Inputs();
  ~Inputs();
  Inputs(Inputs&&) noexcept;
  Inputs& operator=(Inputs&&) noexcept;

  // All strings, numbers and truth values of `value` are inputs (text.h), but
  // for the strings that `is_trusted` names.
  // Errors: kInvalidArgument naming what is nested too deep or not UTF-8.
  absl::Status Set(std::string_view name, const json::value& value);
  absl::Status Set(std::string_view name, const json::value& value,
                   IsTrusted is_trusted);
  // A string of the template's own side, such as a model's end of sequence.
  void SetTrusted(std::string_view name, std::string_view text);

 private:
  friend class Template;
  std::unique_ptr<Dict> values_;
  // Approximate size of all values.
  int64_t num_bytes_ = 0;
};

struct RenderOptions {
  RenderLimits limits;
  absl::Time now = absl::Now();  // what strftime_now shows, in local time
};

class Template {
 public:
  static constexpr size_t kMaxSourceBytes = 1 << 20;

  // Errors: kInvalidArgument, "line 3, column 12: ..." naming what is wrong.
  static absl::StatusOr<std::unique_ptr<Template>> Parse(
      std::string_view source);
  ~Template();
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  // Errors: kInvalidArgument with the place in the template and what went
  // wrong there, also what the template raises; kResourceExhausted if it takes
  // more than the limits.
  absl::StatusOr<Text> Render(const Inputs& inputs,
                              const RenderOptions& options = {}) const;

 private:
  struct Parsed;
  explicit Template(std::unique_ptr<const Parsed> parsed);

  const std::unique_ptr<const Parsed> parsed_;
};

}  // namespace espalier::jinja
