// Sequence: one token stream, the owner of one page table. Its tokens are read
// from its group's token tree, or are the prompt's. How many of them are fed is
// its own: sequences of one group may have different lengths.
#pragma once

#include <cstdint>
#include <utility>

#include "base/ids.h"
#include "pages/page_table.h"

namespace espalier {

struct Sequence {
  SequenceId id;
  PageTable pages;  // of the tokens fed so far

  // Tokens fed, or planned to be: the position of the next one.
  int num_tokens() const { return pages.num_tokens(); }
};

// Gives each sequence of an engine an id of its own. Used on the strand.
class SequenceIdSource {
 public:
  SequenceId Next() { return SequenceId{next_++}; }

 private:
  int64_t next_ = 0;
};

}  // namespace espalier
