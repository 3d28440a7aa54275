// Filters that make strings of strings: capitalize, escape, format, indent,
// lower, replace, safe, title, trim, upper. Other values become strings first,
// as jinja2's soft_str does.
#pragma once

#include <span>

#include "text/jinja/filters.h"

namespace espalier::jinja {

std::span<const NamedFilter> TextFilters();

}  // namespace espalier::jinja
