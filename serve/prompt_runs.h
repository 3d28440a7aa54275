// PromptRuns: the prompts of a call while they run in the engine, side by side,
// read by one coroutine as one sequence of events.
//
//   PromptRuns runs(exchange.executor());
//   for (...) runs.Start(i, std::move(streams[i]));
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

#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "request/request.h"
#include "request/stream_event.h"

namespace espalier::serve {

// An event of a prompt's run, or its end.
struct RunEvent {
  int prompt = 0;  // -1: an error of all of them
  std::variant<StreamEvent, absl::StatusOr<Result>> what;
};

class PromptRuns {
 public:
  explicit PromptRuns(const boost::asio::any_io_executor& executor);
  ~PromptRuns();
  PromptRuns(const PromptRuns&) = delete;
  PromptRuns& operator=(const PromptRuns&) = delete;

  // Runs it. Next returns, as of this prompt, its events and then its result or
  // an error; of a whole request the last alone.
  void Start(int prompt, ResultStream stream);
  void Start(int prompt, Engine& engine, Engine::Prepared request);
  // From now on Next returns nothing, now and then, while nothing comes: at
  // least every 15 s something does.
  void StartPings();

  // Returns a function that makes Next return an error, of no prompt (-1), from
  // any thread and at any time.
  std::function<void(absl::Status)> Interrupter();

  // Returns the next event.
  boost::asio::awaitable<std::optional<RunEvent>> Next();

 private:
  struct Shared;

  static void Spawn(const std::shared_ptr<Shared>& shared,
                    boost::asio::awaitable<void> run);
  static boost::asio::awaitable<void> SendPings(Shared* shared);
  static boost::asio::awaitable<void> Send(Shared* shared,
                                           std::optional<RunEvent>& event);
  static boost::asio::awaitable<void> SendError(Shared* shared,
                                                absl::Status why);
  static boost::asio::awaitable<void> ReadStream(Shared* shared, int prompt,
                                                 ResultStream stream);
  static boost::asio::awaitable<void> AwaitResult(Shared* shared, int prompt,
                                                  Engine* engine,
                                                  Engine::Prepared request);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace espalier::serve
