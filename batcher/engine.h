// Engine: the async front door. Any number of coroutines, on any executors,
// submit requests; one strand owns all state, writes step plans, as many ahead
// as the executor takes, and never waits for the model.
//
//   boost::asio::io_context context;
//   ASSIGN_OR_RETURN(auto steps, ModelExecutor::Create(model, threads));
//   ASSIGN_OR_RETURN(Engine engine,
//                    Engine::Create(context.get_executor(), steps));
//   co_spawn(context, [&]() -> awaitable<void> {
//     absl::StatusOr<Result> result = co_await engine.Generate(request);
//     ...
//   }, detached);
//   context.run();
//
// A request is awaited (Generate), or read while it runs (Stream). What takes
// long of making one ready runs on the thread that calls these, or on any
// other, before: Prepare.
//
// Life: an engine shares what it uses (the StepExecutor, the tokenizer, the
// trace sink), so callers release all of it, and the engine, when they like and
// in any order, also while its context runs. Requests that still run then are
// answered with kCancelled; a step that runs ends by itself, and with it the
// executor. Contexts may go first, too: the engine's own, as soon as no thread
// runs it (callers on other contexts are answered with kCancelled), and that of
// a coroutine that waits, which ends its request. So a thread that blocks until
// its request is answered may run a context of its own.
//
// Racing: a coroutine must be cancelled where it runs; that is asio's rule, of
// its operator || and make_parallel_group, too. A race with a timer on a
// context of several threads therefore takes a strand:
//
//   co_spawn(make_strand(threads), [&]() -> awaitable<void> {
//     auto first = co_await (engine.Generate(request) || timer.async_wait());
//
// On an asio::thread_pool Generate, Stream and Next are refused with
// kFailedPrecondition where they could be cancelled without one. The number of
// threads that run an io_context cannot be read, so there they are not refused.
//
// Steps that hang: with EngineOptions::step_timeout, requests do not wait for a
// step longer than that, and nor do Shutdown and the end of the engine
// (docs/step.md, "Faults").
//
// Memory: where the host runs out of it the requests that it was for end with
// kResourceExhausted, and others go on.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "batcher/engine_options.h"
#include "batcher/engine_stats.h"
#include "batcher/result_stream.h"
#include "batcher/scheduler/too_few_pages.h"
#include "request/request.h"
#include "request/stream_event.h"

namespace espalier {

class EngineCore;        // batcher/engine_core.h
struct PreparedRequest;  // beam/prepared_request.h
class StepExecutor;      // exec_request/step_executor.h

class Engine {
 public:
  // Work runs on `executor`, on a strand of the engine's own.
  // Errors: kInvalidArgument naming the option, or the field of the model's
  // description, and its value; kFailedPrecondition if another engine uses
  // `steps`, until it is gone, or its Shutdown has completed;
  // kResourceExhausted if memory runs out.
  static absl::StatusOr<Engine> Create(boost::asio::any_io_executor executor,
                                       std::shared_ptr<StepExecutor> steps,
                                       const EngineOptions& options = {});
  // Ends the requests that run. One that was moved from is only destroyed, or
  // assigned to.
  ~Engine();
  Engine(Engine&&) = default;
  Engine& operator=(Engine&&);

  // A request that has been checked and made ready to run, and holds no place
  // among those that wait yet. It may outlive its engine, and runs once, in no
  // other engine: Generate and Stream answer kFailedPrecondition then.
  class Prepared {
   public:
    Prepared(Prepared&&) noexcept;
    Prepared& operator=(Prepared&&) noexcept;
    ~Prepared();

   private:
    friend class Engine;
    Prepared(std::unique_ptr<PreparedRequest> request, std::string owner,
             std::weak_ptr<EngineCore> engine);

    std::unique_ptr<PreparedRequest> request_;
    std::string owner_;
    std::weak_ptr<EngineCore> engine_;
  };

  // All work on a request that takes longer the larger its lists are. Requests
  // that share lists (base/shared_list.h) share it. Any thread. Its deadline_ms
  // counts from here. `owner` is whose share of the places it takes
  // (batcher/queue_limits.h); empty: of none.
  // Errors: kInvalidArgument, and kResourceExhausted if memory runs out, as
  // Generate.
  absl::StatusOr<Prepared> Prepare(Request request,
                                   std::string owner = {}) const;

  // Runs one request to its end. Cancelling the awaiting coroutine (by the
  // types of cancellation that it lets through; terminal, unless it says
  // otherwise) or destroying it ends the request at once, in whatever state it
  // is, and its pages come back.
  // Errors: kInvalidArgument for a bad request, naming field and value, before
  // anything is held; kResourceExhausted for one that can never fit, with the
  // figures, and with kTooFewPages if it lacks pages, for one too many
  // (EngineOptions::max_waiting, max_waiting_tokens), or if memory runs out;
  // kCancelled if its caller, a shutdown or the end of the engine's context
  // cancelled it; kUnavailable after Drain, or if a step is not answered within
  // step_timeout, or was not and still runs; kDeadlineExceeded if its
  // deadline_ms passed before the first token; kFailedPrecondition if no token
  // was possible; and what the model returned, if a step failed.
  boost::asio::awaitable<absl::StatusOr<Result>> Generate(Request request);
  boost::asio::awaitable<absl::StatusOr<Result>> Generate(Prepared request);

  // Streams one request while it runs (result_stream.h). Until the stream is
  // there it is cancelled as Generate is; from then on destroying the
  // stream ends the request.
  // Errors: kInvalidArgument, kResourceExhausted and kUnavailable as Generate,
  // kCancelled after a shutdown. Later errors come out of the stream.
  boost::asio::awaitable<absl::StatusOr<ResultStream>> Stream(
      Request request, StreamOptions options = {});
  boost::asio::awaitable<absl::StatusOr<ResultStream>> Stream(
      Prepared request, StreamOptions options = {});

  // Refuses new requests, with kUnavailable, lets those that wait or run end,
  // and completes when no request and no step is left. Shutdown cuts that short
  // at any time; after either no request is taken any more. Any number of calls
  // complete together. Cancelled as Shutdown is, which leaves the engine
  // draining.
  boost::asio::awaitable<void> Drain();

  // Refuses new requests, cancels those that wait or run, and completes when
  // nothing is held and the steps in flight, which are given up soon
  // (StepPlan::stop), have ended or are late (step_timeout). Both kinds are
  // answered with kCancelled and, of several shutdowns, the first one's `why`.
  // A caller that is cancelled meanwhile gets boost::system::system_error.
  boost::asio::awaitable<void> Shutdown(std::string_view why = kShutDown);

  // Forgets all cached prefixes, those that running requests would leave
  // included; no result changes. Returns the number of pages. Cancelled as
  // Shutdown is. 0 after the end of the engine's context.
  boost::asio::awaitable<int> ResetPrefixCache();

  // Cancelled as Shutdown is. All zero after the end of the engine's context.
  boost::asio::awaitable<EngineStats> Stats();

  // Requests that have not started yet and are not background ones
  // (kBackgroundPriority), of this moment. Any thread; waits for nothing.
  int64_t num_foreground_waiting() const;

 private:
  static constexpr char kShutDown[] = "the engine is shut down";

  explicit Engine(std::shared_ptr<EngineCore> core);
  void EndRequests();

  std::shared_ptr<EngineCore> core_;  // null after a move
};

}  // namespace espalier
