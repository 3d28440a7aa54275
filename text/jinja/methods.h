// Methods of strings, dictionaries, lists, tuples and ranges: those of Python
// that change nothing (docs/chat.md lists them).
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

class Evaluator;

// Throws TemplateError.
using Method = Value (*)(Evaluator& evaluator, const Value& object,
                         const Arguments& arguments);

struct NamedMethod {
  std::string_view name;
  Method method;
};

// Null if there is none.
Method FindMethod(const Value& object, std::string_view name);
// True if the sandbox refuses the method because it would change `object`.
bool IsRefusedMethod(const Value& object, std::string_view name);
// True for a method of Python's strings that templates do not have here.
bool IsUnsupportedMethod(const Value& object, std::string_view name);

}  // namespace espalier::jinja
