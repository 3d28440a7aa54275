// A beam search over random log-probabilities, as a trace: what an engine would
// hand over, without an engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace espalier::testing {

struct FakeSearch {
  int64_t request = 0;
  int num_beams = 4;
  int num_steps = 6;  // at most
  uint32_t seed = 1;
  int page_size = 4;
  // Texts of tokens, taken in turn.
  std::vector<std::string> texts = {" the", " vine", "yard", "é", " grows"};
  bool ends = true;  // false: the trace stops before its end
  // Before this step it is preempted and resumes; 0: before none.
  int preempted_before = 0;
  bool is_constrained = false;
};

std::vector<TraceEvent> MakeUpTrace(const FakeSearch& search);

// Returns the events as a file's text.
std::string TraceLines(const std::vector<TraceEvent>& events);

}  // namespace espalier::testing
