// Tests: what stands after "is". They are jinja2's (docs/chat.md lists them).
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

class Evaluator;

// `value` is the operand before "is". Throws TemplateError.
using Test = bool (*)(Evaluator& evaluator, const Value& value,
                      const Arguments& arguments);

// Null if there is none.
Test FindTest(std::string_view name);

}  // namespace espalier::jinja
