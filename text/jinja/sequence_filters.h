// Filters of lists and dictionaries as a whole: their order, length, sums,
// first and last elements.
#pragma once

#include <span>

#include "text/jinja/filters.h"

namespace espalier::jinja {

std::span<const NamedFilter> SequenceFilters();

}  // namespace espalier::jinja
