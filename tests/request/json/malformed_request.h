// A request line that must be refused, with the whole message of its error.
#pragma once

#include <string>

namespace espalier::testing {

struct MalformedRequest {
  std::string line;
  std::string message;
};

// A line whose params are `params`, otherwise good.
inline std::string WithParams(const std::string& params) {
  return R"({"prompt_tokens": [1, 4, 5], "params": )" + params + "}";
}

}  // namespace espalier::testing
