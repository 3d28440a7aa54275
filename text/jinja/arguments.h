// Arguments: what a call passes to a function, a filter, a test or a macro.
//
//   // indent(s, width=4, first=False, blank=False)
//   ArgumentReader args("indent", arguments, {"width", "first", "blank"});
//   const bool first = args.Has(1) && IsTrue(args[1]);
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace espalier::jinja {

struct Arguments {
  std::vector<Value> positional;
  // Names that ** passes keep the marks of the keys they were.
  std::vector<std::pair<Text, Value>> named;
};

// Gives the parameters of a function their arguments, by place or by name.
class ArgumentReader {
 public:
  // Errors (thrown): too many, unknown or twice, naming `function`; too few if
  // there are less than `num_required`.
  ArgumentReader(std::string_view function, const Arguments& arguments,
                 std::initializer_list<std::string_view> parameters,
                 size_t num_required = 0);

  bool Has(size_t i) const { return values_[i] != nullptr; }
  // REQUIRES: Has(i).
  const Value& operator[](size_t i) const { return *values_[i]; }
  // Returns the argument, or a default. Errors (thrown): wrong type.
  bool BoolOr(size_t i, bool value) const;
  int64_t IntOr(size_t i, int64_t value) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

// Returns a string argument.
// Errors (thrown): another type, naming `function`.
const Text& StringArgument(const Value& value, std::string_view function);

}  // namespace espalier::jinja
