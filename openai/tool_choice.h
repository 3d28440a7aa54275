// ToolChoice: which calls of its tools the answer to a chat has, as the field
// tool_choice says:
//
//   "auto", "none", "required"
//   {"type": "function", "function": {"name": "f"}}
//   {"type": "allowed_tools", "allowed_tools": {"mode": "required",
//     "tools": [{"type": "function", "function": {"name": "f"}}]}}
//
// In /v1/responses the members of "function" and of "allowed_tools" stand in
// the objects around them.
//
// Thread safety: a value.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace espalier::openai {

struct ToolChoice {
  enum class Kind {
    kAuto,      // calls, or text
    kNone,      // the answer is text: the tools are not in the prompt
    kRequired,  // one call at least
    kFunction,  // one call, of a function that the call names
  };
  Kind kind = Kind::kAuto;
  // The functions that may be called; unset: those of all tools.
  std::optional<std::vector<std::string>> names = {};

  bool must_call() const {
    return kind == Kind::kRequired || kind == Kind::kFunction;
  }
};

// Returns a choice that is not only "auto" or "none" as errors show it:
// "required", or the functions that it names.
std::string ShownChoice(const ToolChoice& choice);

}  // namespace espalier::openai
