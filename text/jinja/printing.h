// Values as text: what Python's str() and repr() give.
//
// All charge the budget for their output, beyond the size of `value` itself,
// and throw TemplateError.
#pragma once

#include <string>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

// str(): a string as it is, marks included; undefined is empty. Another value
// is an input where it or something in it is.
Text ToText(const Value& value, Budget& budget);

// repr() of a string.
std::string ReprOfString(std::string_view text);
// repr() of a value; sets `*has_input` if it or something in it is an input.
std::string Repr(const Value& value, Budget& budget, bool* has_input);
// repr(), or ascii(), which escapes all that is not ASCII.
Text ReprText(const Value& value, Budget& budget);

// The fewest digits that read back to the same value, as Python writes them:
// 1.0, 0.1, 1e+16, inf.
std::string FormatFloat(double value);

}  // namespace espalier::jinja
