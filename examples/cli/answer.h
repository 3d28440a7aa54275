// Answer: what a runtime (runtime.h) gives for a request.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "request/request.h"
#include "text/tokenizer.h"

namespace espalier::cli {

// What one request came to.
struct Answer {
  absl::StatusOr<Result> result;
  std::vector<std::string> texts;  // [hypotheses]; empty without a tokenizer
  const Tokenizer* tokenizer = nullptr;  // the runtime's, or null
};

}  // namespace espalier::cli
