// Builtins of templates: filters, tests, functions, and methods of strings and
// dictionaries. They are jinja2's and those of transformers that convert values
// to text (docs/chat.md lists them).
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

class Evaluator;

// `value` is the operand before "|". All of these throw TemplateError.
using Filter = Value (*)(Evaluator& evaluator, const Value& value,
                         const Arguments& arguments);
using Test = bool (*)(Evaluator& evaluator, const Value& value,
                      const Arguments& arguments);
using Method = Value (*)(Evaluator& evaluator, const Value& object,
                         const Arguments& arguments);
using GlobalFunction = Value (*)(Evaluator& evaluator,
                                 const Arguments& arguments);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};
struct NamedMethod {
  std::string_view name;
  Method method;
};

// Null if there is none.
Filter FindFilter(std::string_view name);
Test FindTest(std::string_view name);
GlobalFunction FindFunction(std::string_view name);
Method FindMethod(const Value& object, std::string_view name);
// True if the sandbox refuses the method because it would change `object`.
bool IsRefusedMethod(const Value& object, std::string_view name);
// True for a method of Python's strings that templates do not have here.
bool IsUnsupportedMethod(const Value& object, std::string_view name);

// Parts of the above, a file each.
Filter FindTextFilter(std::string_view name);
Filter FindSequenceFilter(std::string_view name);
Filter FindSelectionFilter(std::string_view name);
Method FindTextMethod(std::string_view name);

// Returns a string argument.
// Errors (thrown): another type, naming `function`.
const Text& StringArgument(const Value& value, std::string_view function);

}  // namespace espalier::jinja
