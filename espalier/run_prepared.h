// Runs requests whose errors keep their parts (base/field_error.h), by which
// interfaces name fields and defaults in their own words. Engine::Generate and
// Stream drop the parts of an invalid request.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "absl/status/statusor.h"
#include "batcher/engine.h"

namespace espalier {

// Errors: as Engine::Prepare and Generate.
boost::asio::awaitable<absl::StatusOr<Result>> RunPrepared(Engine& engine,
                                                           Request request);

// Errors: as Engine::Prepare and Stream.
boost::asio::awaitable<absl::StatusOr<ResultStream>> StreamPrepared(
    Engine& engine, Request request, StreamOptions options = {});

}  // namespace espalier
