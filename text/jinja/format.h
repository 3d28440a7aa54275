// str.format, with fields by place or name, their attributes, and format
// specifications; and the specifications themselves, which % shares.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

class Evaluator;

// Errors (thrown): a field that is not there, or a specification that does not
// fit its value.
Text FormatBraces(Evaluator& evaluator, const Text& format,
                  const Arguments& arguments);

// [[fill]align][sign][#][0][width][,][.precision][type], as read.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // one of < > ^ =; none: by the value's type
  char sign = '-';
  bool has_zeros = false;
  bool has_commas = false;
  bool is_alternate = false;
  int64_t width = 0;
  std::optional<int> precision;
  char type = '\0';
};

// A width or a precision at the front of `*rest`, which is taken.
// Errors (thrown): too large.
std::optional<int64_t> TakeFormatNumber(std::string_view* rest);
// Whether `*rest` begins with `c`, which is taken.
bool TakeFormatCharacter(std::string_view* rest, char c);

// `value` as `spec` says.
Text ApplyFormat(const FormatSpec& spec, const Value& value, Budget& budget);

// `text`, which a format's `field` made: an input as a whole if the field has
// one, of which its fill, sign and digits are then.
Text MadeBy(const Text& field, Text text);

}  // namespace espalier::jinja
