// espalier constrain --items: a catalogue of items, and which items are in it.
#pragma once

#include "absl/status/statusor.h"
#include "examples/cli/commands/constrain_command.h"

namespace espalier::cli {

// As Constrain, of options.items.
absl::StatusOr<int> ConstrainToItems(const ConstrainOptions& options);

}  // namespace espalier::cli
