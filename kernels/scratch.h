// Scratch: memory that a kernel on the host needs while it works on one row.
// Each thread keeps its own from row to row: blocks of this size go back to the
// system when they are freed, and their pages, new and cleared with every row,
// would cost more than the row's arithmetic. Contents are never carried over.
#pragma once

#include <cstddef>

namespace espalier {

// The uses of scratch. Two users of one name must not be active at once.
enum class ScratchUse {
  kBlock,
  kKeys,
  kValues,
  kEdited,
  kEditedLogits,
  kLogProbs,
  kOuter,
  kInner0,
  kInner1,
  kTargetWeights,
  kDraftWeights,
  kCount
};

// Returns at least `size` unspecified floats for the calling thread, valid
// until its next call for the same use.
float* Scratch(ScratchUse use, size_t size);

}  // namespace espalier
