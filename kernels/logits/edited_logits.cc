#include "kernels/logits/edited_logits.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/float_limits.h"

namespace espalier {

void WriteEditedLogits(std::span<const float> logits, const LogitEdits& edits,
                       std::span<float> edited) {
  CHECK_EQ(edited.size(), logits.size());
  if (edits.is_allow_list) {
    std::ranges::fill(edited, -kInf);
  } else {
    std::ranges::copy(logits, edited.begin());
  }
  for (const TokenEdit& edit : edits.edits) {
    edited[edit.token] = edit.banned ? -kInf
                                     : EditedScore(logits[edit.token], edit,
                                                   edits.repetition_penalty);
  }
  if (edits.rule != nullptr) {
    ApplyTimestampRule(*edits.rule, edits.state, edited);
  }
}

}  // namespace espalier
