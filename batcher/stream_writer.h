// What a request's steps tell its reader: turns where a search stands into
// events, and tokens into text.
#pragma once

#include <memory>

#include "batcher/event_queue.h"
#include "beam/search_watcher.h"
#include "exec_request/generation_params.h"
#include "exec_request/stream_event.h"
#include "text/tokenizer.h"

namespace espalier {

// Writes into `queue`, on its strand. `params` as ValidateRequest leaves them,
// and as CheckStops has found them with `tokenizer`, which outlives this; null:
// there is no text.
std::unique_ptr<SearchWatcher> MakeStreamWriter(
    const GenerationParams& params, const StreamOptions& options,
    const Tokenizer* tokenizer, std::shared_ptr<EventQueue> queue);

}  // namespace espalier
