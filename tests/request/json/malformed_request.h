// A request line that must be refused, with the whole message of its error.
#pragma once

#include <string>

namespace espalier::testing {

struct MalformedRequest {
  std::string line;
  std::string message;
};

// Returns a good line with these params.
inline std::string WithParams(const std::string& params) {
  return R"({"prompt_tokens": [1, 4, 5], "params": )" + params + "}";
}

}  // namespace espalier::testing
