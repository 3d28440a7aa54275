// Paths of the project's files for tests and benchmarks: data, models,
// documents.
//
// The root is compiled into this one object only, so that a compiler cache
// shares all other objects among checkouts.
#pragma once

#include <string>

namespace espalier {

// The absolute path of `path`, which is relative to the project's root. Without
// `path`, the root itself.
std::string SourcePath(const std::string& path = "");

}  // namespace espalier
