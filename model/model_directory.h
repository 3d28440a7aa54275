// CheckModelDirectory: detects paths that are not model directories before
// anything is read: another program's format, weights in another file, an
// adapter, the name of a model on a hub.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace espalier {

// Errors: kNotFound, with advice if the name looks like a model on a hub;
// kInvalidArgument for a file; kFailedPrecondition if it may not be read.
absl::Status CheckIsDirectory(const std::string& directory);

// OK if the directory may hold a model; loading it finds all other faults.
// Errors: as CheckIsDirectory; kNotFound if it does not exist or has no
// config.json; kFailedPrecondition if it may not be read; kInvalidArgument
// saying what it is instead, and what to do.
absl::Status CheckModelDirectory(const std::string& directory);

}  // namespace espalier
