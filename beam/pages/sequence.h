// Sequence: one token stream, the owner of one page table. Its tokens are in
// its group's token tree or the prompt. The number of fed tokens is its own:
// sequences of one group may have different lengths.
#pragma once

#include <cstdint>
#include <utility>

#include "base/ids.h"
#include "pages/page_table.h"

namespace espalier {

struct Sequence {
  SequenceId id;
  PageTable pages;  // for the tokens fed so far

  // Returns the number of tokens that are fed or in a plan: the next position.
  int num_tokens() const { return pages.num_tokens(); }
};

// Assigns unique ids to the sequences of an engine. Used on the strand.
class SequenceIdSource {
 public:
  SequenceId Next() { return SequenceId{next_++}; }

 private:
  int64_t next_ = 0;
};

}  // namespace espalier
