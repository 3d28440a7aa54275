// espalier constrain --items: a catalogue of items, and which items are in it.
#pragma once

#include "absl/status/statusor.h"
#include "examples/cli/commands/constrain_command.h"
#include "examples/cli/input/line_reader.h"

namespace espalier::cli {

// As Constrain, of options.items. Checks the lines of `reader`, or if that is
// null options.texts.
absl::StatusOr<int> ConstrainToItems(const ConstrainOptions& options,
                                     LineReader* reader);

}  // namespace espalier::cli
