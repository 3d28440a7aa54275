// espalier generate --stream: prints texts while they are generated.
//
// All texts run together. They are printed one after the other, each as it
// comes: its one sample, or what all its beams agree on so far, or, of several
// samples, what each adds, on a line of its own after its number. The list of
// hypotheses follows, of several samples with their numbers. What is not
// printed yet waits in its stream, merged.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "examples/cli/runtime/text_run.h"

namespace espalier::cli {

// Stops early if the output cannot be written, and silently at what was
// cancelled.
boost::asio::awaitable<RunOutcome> StreamTexts(const TextRun& run);

}  // namespace espalier::cli
