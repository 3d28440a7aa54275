// str.format, with fields by place or name, their attributes, and format
// specifications (format_spec.h).
#pragma once

#include "text/jinja/arguments.h"
#include "text/jinja/text.h"

namespace espalier::jinja {

class Evaluator;

// Errors (thrown): a field that is not there, or a specification that does not
// fit its value.
Text FormatBraces(Evaluator& evaluator, const Text& format,
                  const Arguments& arguments);

// `text`, which a format's `field` made: an input as a whole if the field has
// one, of which its fill, sign and digits are then.
Text MadeBy(const Text& field, Text text);

}  // namespace espalier::jinja
