// Filters that take the name of a test or of another filter, and apply it to
// each element: map, select, reject, selectattr, rejectattr. As in jinja2, a
// value that is not true has no elements, even if it could have none.
#pragma once

#include <span>

#include "text/jinja/filters.h"

namespace espalier::jinja {

std::span<const NamedFilter> SelectionFilters();

}  // namespace espalier::jinja
