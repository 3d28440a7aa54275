// CheckModelDirectory: what people give as a model and is not one, named before
// anything is read: another program's format, weights in another file, an
// adapter, the name of a model on a hub.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace espalier {

// Whether `directory` is there and may be a model's; what else is wrong with it
// reading it tells.
// Errors: kNotFound if it is not there or has no config.json;
// kFailedPrecondition if the system does not let it be read; kInvalidArgument
// saying what it is instead, and what to do.
absl::Status CheckModelDirectory(const std::string& directory);

}  // namespace espalier
