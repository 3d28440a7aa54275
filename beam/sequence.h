// Sequence: one token stream, the owner of one page table. Its tokens are read
// from its group's token tree, or are the prompt's.
#pragma once

#include <cstdint>
#include <utility>

#include "base/ids.h"
#include "pages/page_table.h"

namespace espalier {

struct Sequence {
  SequenceId id;
  PageTable pages;  // of the tokens fed so far
};

// Gives each sequence of an engine an id of its own. Used on the strand.
class SequenceIdSource {
 public:
  SequenceId Next() { return SequenceId{next_++}; }

 private:
  int64_t next_ = 0;
};

}  // namespace espalier
