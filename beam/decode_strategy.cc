#include "beam/decode_strategy.h"

#include "base/status.h"

namespace espalier {

absl::Status NoTokenPossible(int num_generated) {
  return FailedPrecondition("no token is possible after ", num_generated,
                            " generated tokens: score processors ban them "
                            "all, or the model gave none");
}

absl::Status NotANumber(int num_generated) {
  return Internal("the model's logits are not numbers (NaN) after ",
                  num_generated, " generated tokens");
}

absl::Status CheckNumbers(std::span<const Candidate> candidates,
                          int num_generated) {
  for (const Candidate& candidate : candidates) {
    if (candidate.token == kNotANumber) return NotANumber(num_generated);
  }
  return absl::OkStatus();
}

}  // namespace espalier
