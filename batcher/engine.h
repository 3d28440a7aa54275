// Engine: the asynchronous interface for requests. Any number of coroutines, on
// any executors, submit requests. One strand owns all state, writes step plans,
// with as many in flight as the executor takes, and never waits for the model.
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
// A request is awaited (Generate), or read while it runs (Stream). The
// expensive preparation of a request runs on the thread that calls these, or
// earlier on any thread by Prepare.
//
// Lifetime: an engine shares ownership of the StepExecutor, the tokenizer and
// the trace sink, so callers may release these and the engine at any time and
// in any order, even while its context runs. Requests still running then end
// with kCancelled. A running step ends by itself and then releases the
// executor. Contexts may end first, too: the engine's own, once no thread runs
// it (callers on other contexts receive kCancelled), and that of a waiting
// coroutine, which ends its request. So a thread that blocks until its request
// ends may run a context of its own.
//
// Racing: by asio's rule a coroutine must be cancelled on its own executor,
// which includes its operator || and make_parallel_group. A race with a timer
// on a context of several threads therefore requires a strand:
//
//   co_spawn(make_strand(threads), [&]() -> awaitable<void> {
//     auto first = co_await (engine.Generate(request) || timer.async_wait());
//
// On an asio::thread_pool, Generate, Stream and Next fail with
// kFailedPrecondition if they could be cancelled without a strand. The number
// of threads that run an io_context is not accessible, so there they do not
// fail.
//
// Steps that hang: with EngineOptions::step_timeout, neither requests nor
// Shutdown nor the engine's destructor wait longer for a step (docs/step.md,
// "Faults").
//
// Memory: if the host runs out of memory, the affected requests end with
// kResourceExhausted, and others continue.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "batcher/engine_options.h"
#include "batcher/engine_stats.h"
#include "batcher/result_stream.h"
#include "batcher/scheduler/too_few_pages.h"
#include "request/request.h"
#include "request/running_requests.h"
#include "request/stream_event.h"

namespace espalier {

class ConstraintLanguage;  // beam/constraint_cache.h
class EngineCore;          // batcher/engine_core.h
class ItemCatalogues;      // constrain/item_catalogues.h
struct PreparedRequest;    // beam/prepared_request.h
class StepExecutor;        // exec_request/step_executor.h

struct PrepareOptions {
  // The owner whose share of the places the request uses
  // (batcher/queue_limits.h); empty: no owner.
  std::string owner = {};
  // False: a constraint that is not compiled yet, which may take two seconds,
  // is left to Engine::Complete.
  bool compiles = true;
};

class Engine {
 public:
  // Work runs on `executor`, on the engine's own strand.
  // Errors: kInvalidArgument naming the option, or the field of the model's
  // description, and its value; kFailedPrecondition if another engine uses
  // `steps`, until it is gone, or its Shutdown has completed;
  // kResourceExhausted if memory runs out.
  static absl::StatusOr<Engine> Create(boost::asio::any_io_executor executor,
                                       std::shared_ptr<StepExecutor> steps,
                                       const EngineOptions& options = {});
  // Ends the running requests. A moved-from engine can only be destroyed or
  // assigned to.
  ~Engine();
  Engine(Engine&&) = default;
  Engine& operator=(Engine&&);

  // A request that is validated and ready to run, but holds no place in the
  // queue yet. It may outlive its engine. It runs once and only in its engine;
  // otherwise Generate and Stream return kFailedPrecondition.
  class Prepared {
   public:
    Prepared(Prepared&&) noexcept;
    Prepared& operator=(Prepared&&) noexcept;
    ~Prepared();

    // The language that Prepare left to Complete; null: none.
    std::shared_ptr<ConstraintLanguage> uncompiled() const;
    const GenerationParams& params() const;
    // The end of its deadline_ms; nullopt without.
    std::optional<std::chrono::steady_clock::time_point> deadline() const;

    struct State;  // batcher/engine.cc

   private:
    friend class Engine;
    explicit Prepared(std::unique_ptr<State> state);

    std::unique_ptr<State> state_;  // null after a move
  };

  // Does all work on a request whose cost grows with the size of its lists.
  // Requests that share lists (base/shared_list.h) share the work. Any thread.
  // deadline_ms counts from this call.
  // Errors: kInvalidArgument, and kResourceExhausted if memory runs out, as
  // Generate.
  absl::StatusOr<Prepared> Prepare(Request request,
                                   PrepareOptions options = {}) const;

  // For a caller that waits before it completes a request: takes its place in
  // the queue now. Otherwise Generate and Stream do.
  // Errors: kResourceExhausted if the queue limits leave no place;
  // kFailedPrecondition if another engine prepared it, or it was moved from.
  absl::Status TakePlace(Prepared* request) const;
  // Compiles a language, in up to two seconds, unless that was done. Any
  // thread; throws std::bad_alloc. Complete returns its error.
  void Compile(ConstraintLanguage* language) const;
  static bool HasCompiled(const ConstraintLanguage& language);
  // Does the rest of what Prepare left, which is little once the language is
  // compiled. Generate and Stream do it if this is not called.
  // Errors: as Prepare and TakePlace. After kResourceExhausted the request is
  // lost.
  absl::Status Complete(Prepared* request) const;

  // Runs one request to its end. Cancelling the awaiting coroutine (by the
  // cancellation types that it allows; by default terminal) or destroying it
  // ends the request at once, in any state, and releases its pages.
  // Errors: kInvalidArgument for an invalid request, naming field and value,
  // before any resource is held; kResourceExhausted for a request that can
  // never fit, with its sizes, and with kTooFewPages if it lacks pages, for one
  // above the queue limits (EngineOptions::max_waiting, max_waiting_tokens), or
  // if memory runs out; kCancelled if its caller, a shutdown or the end of the
  // engine's context cancelled it; kUnavailable after Drain, or if a step
  // exceeds step_timeout, or did and still runs; kDeadlineExceeded if its
  // deadline_ms passed before the first token; kFailedPrecondition if no token
  // was possible; and the model's error, if a step failed.
  boost::asio::awaitable<absl::StatusOr<Result>> Generate(Request request);
  boost::asio::awaitable<absl::StatusOr<Result>> Generate(Prepared request);

  // Streams one request while it runs (result_stream.h). Until the stream is
  // returned, it is cancelled as Generate is; afterwards destroying the stream
  // ends the request.
  // Errors: kInvalidArgument, kResourceExhausted and kUnavailable as Generate,
  // kCancelled after a shutdown. The stream returns later errors.
  boost::asio::awaitable<absl::StatusOr<ResultStream>> Stream(
      Request request, StreamOptions options = {});
  boost::asio::awaitable<absl::StatusOr<ResultStream>> Stream(
      Prepared request, StreamOptions options = {});

  // Refuses new requests with kUnavailable, lets waiting and running ones end,
  // and completes when no request and no step is left. Shutdown can interrupt
  // it at any time; after either no new requests are accepted. Concurrent calls
  // complete together. Cancelled as Shutdown is, which leaves the engine
  // draining.
  boost::asio::awaitable<void> Drain();

  // Refuses new requests and cancels waiting and running ones. Completes when
  // nothing is held and the steps in flight have ended or exceeded
  // step_timeout; their stop tokens (StepPlan::stop) shorten them. Both kinds
  // of requests end with kCancelled and `why`, that of the first shutdown if
  // there are several. A caller that is cancelled meanwhile gets
  // boost::system::system_error.
  boost::asio::awaitable<void> Shutdown(std::string_view why = kShutDown);

  // Clears the prefix cache, including pages that running requests would leave
  // in it; results do not change. Returns the number of pages. Cancelled as
  // Shutdown is. Returns 0 after the end of the engine's context.
  boost::asio::awaitable<int> ResetPrefixCache();

  // A pause of an engine: no step runs until this is destroyed. Requests are
  // taken, and wait.
  class Pause {
   public:
    Pause(Pause&& other) noexcept = default;
    Pause& operator=(Pause&&) = delete;
    // Steps run again. Also in an engine that is gone.
    ~Pause();

    // The steps after the pause have other weights. Empties the prefix cache,
    // to which requests that run add nothing any more.
    //   version  Result::weights_version of requests that start then
    void SetWeightsVersion(int64_t version);
    // The model is useless: requests end, and others are refused, with `why`,
    // until a later pause sets a version.
    void BreakWeights(absl::Status why);

   private:
    friend class Engine;
    Pause(std::shared_ptr<EngineCore> core, int64_t number);
    static boost::asio::awaitable<absl::StatusOr<Pause>> Begin(
        std::shared_ptr<EngineCore> core, RunningRequests running);

    std::shared_ptr<EngineCore> core_;  // null after a move
    int64_t number_;
  };

  // Pauses the engine once no step runs and the requests that have started are
  // dealt with. Cancelled as Shutdown is, which ends the pause.
  // Errors: kFailedPrecondition while another pause lasts or is awaited;
  // kUnavailable if a step exceeds step_timeout; kCancelled after a shutdown.
  boost::asio::awaitable<absl::StatusOr<Pause>> PauseSteps(
      RunningRequests running);

  // Cancelled as Shutdown is. All zero after the end of the engine's context.
  boost::asio::awaitable<EngineStats> Stats();

  // The catalogues that requests name. A request has the version that is the
  // latest when it is prepared. Any thread; valid as long as the engine.
  ItemCatalogues& items() const;

  // Returns the current number of requests that have not started, without
  // background ones (kBackgroundPriority). Any thread; does not wait.
  int64_t num_foreground_waiting() const;

 private:
  static constexpr char kShutDown[] = "the engine is shut down";

  explicit Engine(std::shared_ptr<EngineCore> core);
  void EndRequests();

  std::shared_ptr<EngineCore> core_;  // null after a move
};

}  // namespace espalier
