// Format specifications, which str.format and % share: how wide a value is
// written, with which sign and digits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // one of < > ^ =; none: by the value's type
  char sign = '-';
  bool sign_is_given = false;
  bool writes_zero_unsigned = false;  // "z": what is rounded to -0 is 0
  bool is_alternate = false;
  int64_t width = 0;
  char separator = '\0';  // between groups of digits: none, ',' or '_'
  std::optional<int> precision;
  int min_digits = 0;  // minimum for integers, with % only
  char type = '\0';
};

// [[fill]align][sign][z][#][0][width][, or _][.precision][type], of str.format.
// Errors (thrown): anything else.
FormatSpec ReadFormatSpec(std::string_view text);

// A width or a precision at the front of `*rest`, which is taken.
// Errors (thrown): too large.
std::optional<int64_t> TakeFormatNumber(std::string_view* rest);
// Returns true and removes `c` if `*rest` begins with it.
bool TakeFormatCharacter(std::string_view* rest, char c);

// format(value, spec) of a specification that is not empty.
// Errors (thrown): it does not fit the value.
Text ApplyFormat(const FormatSpec& spec, const Value& value, Budget& budget);

// Without a check of the type's options: an integer or a float as `spec.type`
// says, and the first `spec.precision` characters of a text.
Text LayOutNumber(const FormatSpec& spec, const Value& value, Budget& budget);
Text LayOutText(const FormatSpec& spec, Text text, char default_align,
                Budget& budget);

// The character of this code point.
// Errors (thrown): there is none.
std::string FormatCharacter(int64_t code_point);

}  // namespace espalier::jinja
