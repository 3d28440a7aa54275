// The functions that templates find without defining them: range, namespace,
// dict, raise_exception, strftime_now.
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

class Evaluator;

// Throws TemplateError.
using GlobalFunction = Value (*)(Evaluator& evaluator,
                                 const Arguments& arguments);

// Null if there is none.
GlobalFunction FindFunction(std::string_view name);

}  // namespace espalier::jinja
