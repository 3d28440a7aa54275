// GenerateAll: requests through an Engine, all at once, as a program's threads
// send them.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "exec_request/step_executor.h"
#include "request/request.h"
#include "tests/batcher/manual_executor.h"

namespace espalier::testing {

// Runs all requests on an engine of `steps`, on this thread, until the last has
// ended. Returns their results.
inline std::vector<absl::StatusOr<Result>> GenerateAll(
    std::shared_ptr<StepExecutor> steps, const std::vector<Request>& requests,
    const EngineOptions& options = {}) {
  boost::asio::io_context context(1);
  Engine engine = MakeEngine(context.get_executor(), std::move(steps), options);
  std::vector<std::future<absl::StatusOr<Result>>> answers;
  for (const Request& request : requests) {
    answers.push_back(boost::asio::co_spawn(context, engine.Generate(request),
                                            boost::asio::use_future));
  }
  context.run();
  std::vector<absl::StatusOr<Result>> results;
  for (auto& answer : answers) results.push_back(answer.get());
  return results;
}

}  // namespace espalier::testing
