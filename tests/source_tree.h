// Where tests and benchmarks find the project's files: data, models, documents.
//
// The root is compiled into one object alone, so that a compiler cache shares
// all others among checkouts.
#pragma once

#include <string>

namespace espalier {

// The absolute path of `path`, which is relative to the project's root. Without
// `path`, the root itself.
std::string SourcePath(const std::string& path = "");

}  // namespace espalier
