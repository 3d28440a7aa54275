// ConstraintParams: the language of texts that the output of a request is
// restricted to (docs/constraints.md).
#pragma once

#include <optional>
#include <string>

#include "base/shared_list.h"

namespace espalier {

// Exactly one of them is set.
struct ConstraintParams {
  std::optional<std::string> regex = {};               // it matches as a whole
  std::optional<SharedList<std::string>> choice = {};  // it is one of these

  friend bool operator==(const ConstraintParams&,
                         const ConstraintParams&) = default;
};

}  // namespace espalier
