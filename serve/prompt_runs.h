// PromptRuns: the requests of a call's prompts while they run in the engine,
// side by side, read by one coroutine as one sequence of events.
//
//   PromptRuns runs(exchange.executor());
//   for (...) runs.Start(i, engine, std::move(requests[i]));
//   while (...) {
//     std::optional<RunEvent> event = co_await runs.Next();
//     ...
//   }
//
// Its end ends them: each is a coroutine of its own, which is cancelled then,
// and ends its request. What they share lives until the last of them has ended.
//
// Thread safety: one thread, that of the executor.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "request/request.h"
#include "request/stream_event.h"

namespace espalier::serve {

// An event of a request's run, or its end.
struct RunEvent {
  int request = 0;  // -1: an error of all of them
  std::variant<StreamEvent, absl::StatusOr<Result>> what;
};

class PromptRuns {
 public:
  explicit PromptRuns(const boost::asio::any_io_executor& executor);
  ~PromptRuns();
  PromptRuns(const PromptRuns&) = delete;
  PromptRuns& operator=(const PromptRuns&) = delete;

  // Runs it. Next returns, as of this request, its result or an error.
  void Start(int request, Engine& engine, Engine::Prepared prepared);
  // Reads them one after the other. Next returns, as of the requests from
  // `first` on, the events of each and then its result; or an error, which is
  // the end.
  void Start(int first, std::vector<ResultStream> streams);
  // Returns what `work` returns, or the error that Next would. `work` owns what
  // it uses, or that outlives the executor: it ends after this if it is
  // cancelled. REQUIRES: nothing else was started.
  boost::asio::awaitable<absl::Status> Await(
      boost::asio::awaitable<absl::Status> work);
  // From now on Next returns nothing, now and then, while nothing comes: at
  // least every 15 s something does.
  void StartPings();

  // Returns a function that makes Next return an error, of no request (-1),
  // from any thread and at any time.
  std::function<void(absl::Status)> Interrupter();

  // Returns the next event; an error of no request (-1) if an exception ended a
  // coroutine, such as for lack of memory.
  boost::asio::awaitable<std::optional<RunEvent>> Next();

 private:
  struct Shared;
  class RunEnd;

  static void Spawn(const std::shared_ptr<Shared>& shared,
                    boost::asio::awaitable<void> run);
  static boost::asio::awaitable<void> SendPings(Shared* shared);
  static boost::asio::awaitable<void> Send(Shared* shared,
                                           std::optional<RunEvent>& event);
  static boost::asio::awaitable<void> Report(
      Shared* shared, boost::asio::awaitable<absl::Status> work,
      std::shared_ptr<absl::Status> result);
  static boost::asio::awaitable<void> ReadStreams(
      Shared* shared, int first, std::vector<ResultStream> streams);
  static boost::asio::awaitable<void> AwaitResult(Shared* shared, int request,
                                                  Engine* engine,
                                                  Engine::Prepared prepared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace espalier::serve
