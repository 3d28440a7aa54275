// MakeStreamWriter: converts the state of a search into the stream events of
// its request, and tokens into text.
#pragma once

#include <memory>

#include "batcher/event_queue.h"
#include "beam/prepared_request.h"
#include "beam/strategy/search_watcher.h"
#include "request/stream_event.h"

namespace espalier {

// Returns a writer to `queue`, on its strand; with texts only if the request
// has one.
std::unique_ptr<SearchWatcher> MakeStreamWriter(
    const PreparedRequest& prepared, const StreamOptions& options,
    std::shared_ptr<EventQueue> queue);

}  // namespace espalier
