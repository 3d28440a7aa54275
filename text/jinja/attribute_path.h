// AttributePath: the part of each element that a filter uses, from its argument
// `attribute`: "name", "address.city", "items.0", or a number.
#pragma once

#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace espalier::jinja {

class AttributePath {
 public:
  AttributePath() = default;  // the element itself
  // Errors (thrown): neither a string nor an integer.
  AttributePath(const Value& attribute, Budget& budget);
  // Parses several paths, divided by commas: "age,name".
  static std::vector<AttributePath> Several(const Value& attribute,
                                            Budget& budget);

  // Undefined where there is none. Errors (thrown): of what is undefined.
  Value Get(Evaluator& evaluator, const Value& item) const;
  // As Get, with `otherwise` in place of undefined values.
  Value GetOr(Evaluator& evaluator, const Value& item,
              const Value& otherwise) const;

 private:
  std::vector<Value> keys_;
};

// Returns the sort key of an element: strings in lower case unless
// `keeps_case`.
Value SortKey(Evaluator& evaluator, const Value& value, bool keeps_case);

}  // namespace espalier::jinja
