// ToJson: json.dumps() of Python, which is the filter tojson of transformers.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

struct JsonFormat {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // per level; unset: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool has_input = false;  // whether the indent or a separator is one
};

// Charges the budget for its output.
// Errors (thrown): a value, or a key of a dictionary, that JSON lacks; the
// budget's.
Text ToJson(const Value& value, const JsonFormat& format, Budget& budget);

}  // namespace espalier::jinja
