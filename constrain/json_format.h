// Formats of JSON Schema as regular expressions.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

struct JsonFormat {
  std::string pattern;  // the whole string matches
  // False if some strings of the format do not match, such as a time with a
  // leap second, or a host name in Punycode.
  bool is_complete = true;
};

// Returns the format of a name of the draft; null for an unknown one.
const JsonFormat* FindJsonFormat(std::string_view name);

}  // namespace espalier
