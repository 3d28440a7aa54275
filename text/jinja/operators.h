// Operators of expressions, with Python's semantics. All throw TemplateError.
#pragma once

#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

// One of + - * / // % **.
Value ApplyBinary(std::string_view op, const Value& left, const Value& right,
                  Budget& budget);
Value ApplyUnary(std::string_view op, const Value& operand);
// One of == != < <= > >= and "in", "not in".
bool ApplyComparison(std::string_view op, const Value& left, const Value& right,
                     Budget& budget);
bool Contains(const Value& container, const Value& item, Budget& budget);
// object[begin:end:step]; bounds that are left out are none.
Value Slice(const Value& object, const Value& begin, const Value& end,
            const Value& step, Budget& budget);

}  // namespace espalier::jinja
