// A model whose executor verifies every kind of draft, for tests of groups that
// speculate.
#pragma once

#include <limits>

#include "base/model_description.h"

namespace espalier::testing {

inline ModelDescription DraftingModel() {
  ModelDescription model;
  model.vocab_size = 100;
  model.max_context = 100;
  model.num_pages = 50;
  model.page_size = 4;
  model.has_shareable_pages = true;
  model.limits.max_drafted_length = std::numeric_limits<int>::max();
  return model;
}

}  // namespace espalier::testing
