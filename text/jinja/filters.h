// Filters: what stands after "|". They are jinja2's, and tojson as transformers
// has it (docs/chat.md lists them).
#pragma once

#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

class Evaluator;

// `value` is the operand before "|". Throws TemplateError.
using Filter = Value (*)(Evaluator& evaluator, const Value& value,
                         const Arguments& arguments);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

// Null if there is none: neither of a single value (abs, attr, default, float,
// int, round, string, tojson), nor in text_filters.h, sequence_filters.h or
// selection_filters.h.
Filter FindFilter(std::string_view name);

}  // namespace espalier::jinja
