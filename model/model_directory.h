// CheckModelDirectory: what people give as a model and is not one, named before
// anything is read: another program's format, weights in another file, an
// adapter, the name of a model on a hub.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace espalier {

// Errors: kNotFound, which says what to do with a model's name on a hub;
// kInvalidArgument for a file; kFailedPrecondition if the system does not let
// it be read.
absl::Status CheckIsDirectory(const std::string& directory);

// The directory may be a model's: reading it tells what else is wrong with it.
// Errors: as CheckIsDirectory; kNotFound if it is not there or has no
// config.json; kFailedPrecondition if the system does not let it be read;
// kInvalidArgument saying what it is instead, and what to do.
absl::Status CheckModelDirectory(const std::string& directory);

}  // namespace espalier
