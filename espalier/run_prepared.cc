#include "espalier/run_prepared.h"

#include <utility>

namespace espalier {

boost::asio::awaitable<absl::StatusOr<Result>> RunPrepared(Engine& engine,
                                                           Request request) {
  absl::StatusOr<Engine::Prepared> prepared =
      engine.Prepare(std::move(request));
  if (!prepared.ok()) co_return prepared.status();
  co_return co_await engine.Generate(*std::move(prepared));
}

boost::asio::awaitable<absl::StatusOr<ResultStream>> StreamPrepared(
    Engine& engine, Request request, StreamOptions options) {
  absl::StatusOr<Engine::Prepared> prepared =
      engine.Prepare(std::move(request));
  if (!prepared.ok()) co_return prepared.status();
  co_return co_await engine.Stream(*std::move(prepared), options);
}

}  // namespace espalier
