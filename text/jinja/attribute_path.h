// AttributePath: which part of each element a filter looks at, as its argument
// `attribute` says: "name", "address.city", "items.0", or a number.
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
  // Of "age,name": the paths between commas.
  static std::vector<AttributePath> Several(const Value& attribute,
                                            Budget& budget);

  // Undefined where there is none. Errors (thrown): of what is undefined.
  Value Get(Evaluator& evaluator, const Value& item) const;
  // The same, with `otherwise` in the place of what is undefined.
  Value GetOr(Evaluator& evaluator, const Value& item,
              const Value& otherwise) const;

 private:
  std::vector<Value> keys_;
};

// What elements are compared by: strings in lower case, unless it counts.
Value SortKey(Evaluator& evaluator, const Value& value, bool keeps_case);

}  // namespace espalier::jinja
