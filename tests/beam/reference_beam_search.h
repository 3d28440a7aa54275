// Second implementation of beam search, straight from the rules of transformers
// 5 (`_beam_search` and its helpers): flat arrays of num_beams entries, scores
// of -1e9 for missing entries, masks instead of branches; and besides the
// power, Wu's form of the length penalty. It shares only the types of its
// arguments and results with beam/.
#pragma once

#include <vector>

#include "request/request.h"
#include "tests/beam/search_alone.h"

namespace espalier::testing {

struct ReferenceResult {
  std::vector<Hypothesis> hypotheses;
  int num_steps = 0;
  // True if a beam of score -1e9 finished: the model has fewer continuations
  // than beams, and the reference filled up with copies.
  bool copies_finished = false;
};

ReferenceResult ReferenceBeamSearch(const LanguageModel& model,
                                    const GenerationParams& params);

}  // namespace espalier::testing
