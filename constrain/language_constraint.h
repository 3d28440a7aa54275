// LanguageConstraint: the constraint of a language of texts, with what a cache
// of constraints (beam/constraint_cache.h) asks.
//
// Thread safety: any thread may read.
#pragma once

#include <cstdint>
#include <limits>

#include "constrain/constraint.h"

namespace espalier {

class LanguageConstraint : public Constraint {
 public:
  // No sequence of tokens is in the language.
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

  // Returns the room that a sequence of the language needs, with the end id of
  // an empty text; kNever if there is none. Perhaps fewer tokens do, where
  // counting the fewest would take too long.
  //   is_empty_text_legal  false: no end id may come first
  virtual int32_t MinRoom(bool is_empty_text_legal) const = 0;

  // Bytes of tables and of the lists so far, without the vocabulary, which
  // constraints share.
  virtual int64_t num_bytes() const = 0;
};

}  // namespace espalier
