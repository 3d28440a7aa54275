#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace espalier::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  const std::string message = message_.str();
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

}  // namespace espalier::internal
