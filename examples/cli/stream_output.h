// espalier generate --stream: prints texts while they are generated.
//
// All texts run together. They are printed one after the other, each as it
// comes: its one sample, or what all its beams agree on so far, or, of several
// samples, what each adds, on a line of its own after its number. The list of
// hypotheses follows, unless the text of greedy search has said all. What is
// not printed yet waits in its stream, merged.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "examples/cli/output.h"
#include "examples/cli/runtime.h"
#include "examples/cli/text_printer.h"
#include "exec_request/generation_params.h"

namespace espalier::cli {

// Stops early if `output` cannot be written, and silently at what was
// cancelled.
// REQUIRES: the runtime has a tokenizer; all arguments outlive the coroutine.
boost::asio::awaitable<Outcome> StreamAll(Runtime& runtime,
                                          const std::vector<std::string>& texts,
                                          const GenerationParams& params,
                                          Output& output);

}  // namespace espalier::cli
