#include "batcher/engine.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <functional>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/memory.h"
#include "base/status.h"
#include "batcher/answer.h"
#include "batcher/engine_core.h"
#include "batcher/event_queue.h"
#include "batcher/queue_limits.h"
#include "batcher/stream_writer.h"
#include "beam/prepared_request.h"
#include "beam/strategy/stopping_criteria.h"
#include "exec_request/step_executor.h"
#include "request/bad_words.h"
#include "request/decoder_prompt.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

namespace asio = boost::asio;

namespace {

// Returns a function that ends the request, from any thread, and frees its
// place at once.
std::function<void()> Canceller(
    const std::shared_ptr<EngineCore>& core, RequestId id,
    const std::shared_ptr<QueueLimits::Place>& place) {
  return [core, id, place] {
    place->GiveBack();
    core->Post([id](EngineCore& on_strand) { on_strand.Cancel(id); });
  };
}

absl::Status Validate(const EngineCore& core, Request* request) {
  RETURN_IF_ERROR(ResolveBadWords(core.tokenizer.get(), &request->params));
  if (!request->params.decoder_prompt.empty()) {  // by no generator
    RETURN_IF_ERROR(ResolveDecoderPrompt(core.tokenizer.get(), core.description,
                                         {}, &request->params)
                        .status());
  }
  RETURN_IF_ERROR(ValidateRequest(core.description, request));
  return CheckStops(request->params, core.tokenizer.get());
}

// Sets the engine's default speculation on a request without the option that
// supports it.
void SpeculateByDefault(const EngineCore& core, GenerationParams* params) {
  if (!params->speculate.has_value() && CanSpeculate(*params)) {
    params->speculate = core.speculate;
  }
}

// A request with a place among the open ones.
struct OpenRequest {
  PreparedRequest prepared;
  std::shared_ptr<QueueLimits::Place> place;
};

// Validates a request, sets its defaults, and compiles its constraint, which it
// returns; null if it has none.
absl::StatusOr<std::shared_ptr<const Constraint>> Complete(
    const EngineCore& core, Request* request) {
  if (request->continuations.empty()) {
    SpeculateByDefault(core, &request->params);
  }
  RETURN_IF_ERROR(Validate(core, request));
  return core.constraints->Get(*request);
}

// Does all work on a complete request that need not run on the strand. Throws
// std::bad_alloc.
std::unique_ptr<PreparedRequest> MakePrepared(
    const EngineCore& core, Request request,
    std::shared_ptr<const Constraint> constraint,
    std::chrono::steady_clock::time_point submitted) {
  GiveSeed(&request);
  auto prepared = std::make_unique<PreparedRequest>(
      std::move(request), core.tokenizer, &core.description,
      std::move(constraint));
  prepared->submitted = submitted;
  return prepared;
}

// Takes a place for a request. Throws std::bad_alloc.
// Errors: kResourceExhausted if there is no place; kFailedPrecondition if
// cancelling would not be safe; kCancelled if its caller was cancelled before,
// under throw_if_cancelled(false).
asio::awaitable<absl::StatusOr<std::shared_ptr<QueueLimits::Place>>> TakePlace(
    std::shared_ptr<EngineCore> core, int64_t num_tokens, int64_t priority,
    std::string owner = {}) {
  const absl::Status can_wait = co_await CheckCanWait();
  if (!can_wait.ok()) co_return can_wait;
  co_return core->limits->Take(num_tokens, owner,
                               priority >= kBackgroundPriority);
}

OpenRequest OpenAt(std::shared_ptr<QueueLimits::Place> place,
                   PreparedRequest prepared) {
  OpenRequest open = {std::move(prepared), std::move(place)};
  open.prepared.while_waiting = std::shared_ptr<const void>(
      nullptr, [place = open.place](const void*) { place->LeaveQueue(); });
  return open;
}

// `num_prompt_tokens`: as given by the caller.
int64_t NumWaitingTokens(int64_t num_prompt_tokens, const Request& request) {
  return num_prompt_tokens + std::ssize(request.params.decoder_prompt_tokens) +
         NumContinuationTokens(request);
}

// Prepares the request for submission. Throws std::bad_alloc.
// Errors: of an invalid request; as TakePlace.
asio::awaitable<absl::StatusOr<OpenRequest>> Open(
    std::shared_ptr<EngineCore> core, Request request) {
  const auto submitted = std::chrono::steady_clock::now();
  absl::StatusOr<std::shared_ptr<const Constraint>> constraint =
      Complete(*core, &request);
  if (!constraint.ok()) {
    // Parts are for interfaces with other names, which call Prepare: a user's
    // ToString() would print them (base/field_error.h).
    absl::Status invalid = constraint.status();
    invalid.ErasePayload("espalier/field_error");
    co_return invalid;
  }
  auto place = co_await TakePlace(
      core, NumWaitingTokens(std::ssize(request.prompt_tokens), request),
      request.params.priority);
  if (!place.ok()) co_return place.status();
  co_return OpenAt(*std::move(place),
                   std::move(*MakePrepared(*core, std::move(request),
                                           *std::move(constraint), submitted)));
}

struct OwnedRequest {
  std::unique_ptr<PreparedRequest> prepared;
  std::string owner;
  std::weak_ptr<EngineCore> engine;  // the engine that prepared it
};

asio::awaitable<absl::StatusOr<OpenRequest>> Open(
    std::shared_ptr<EngineCore> core, OwnedRequest ready) {
  if (ready.prepared == nullptr) {
    co_return FailedPrecondition("a prepared request runs once, and this one ",
                                 "was moved from");
  }
  if (ready.engine.lock() != core) {
    co_return FailedPrecondition("another engine prepared this request");
  }
  const int64_t num_tokens = NumWaitingTokens(
      ready.prepared->num_prompt_tokens(), ready.prepared->request);
  auto place = co_await TakePlace(core, num_tokens,
                                  ready.prepared->request.params.priority,
                                  std::move(ready.owner));
  if (!place.ok()) co_return place.status();
  co_return OpenAt(*std::move(place), std::move(*ready.prepared));
}

// Returns `done` wrapped to free the request's place first, so that its caller
// finds it free.
Scheduler::Done GivingBack(std::shared_ptr<QueueLimits::Place> place,
                           Scheduler::Done done) {
  return [place = std::move(place),
          done = std::move(done)](absl::StatusOr<Result> result) {
    place->GiveBack();
    done(std::move(result));
  };
}

// Posts the work that submits a request, which `*guard` cancels. If it throws
// std::bad_alloc, the guard is dismissed: cancelling would wait for memory,
// while the request still holds its own.
template <typename Work>
void Submit(const std::shared_ptr<EngineCore>& core, CancelOnDestruction* guard,
            Work work) try {
  core->PostOrThrow(std::move(work));
} catch (const std::bad_alloc&) {
  guard->Answered();
  throw;
}

// Takes parameters by value, because the coroutine may outlive the engine.
// Given is Request or OwnedRequest.
template <typename Given>
asio::awaitable<absl::StatusOr<Result>> RunRequest(
    std::shared_ptr<EngineCore> core, Given request) {
  try {
    absl::StatusOr<OpenRequest> open = co_await Open(core, std::move(request));
    if (!open.ok()) co_return open.status();

    using Value = absl::StatusOr<Result>;
    const auto answer = std::make_shared<Answer<Value>>();
    const RequestId id = core->NextId();
    CancelOnDestruction guard(Canceller(core, id, open->place));
    Submit(
        core, &guard,
        [id,
         done = GivingBack(open->place, SendTo<Value>(answer, ContextEnded())),
         prepared = std::move(open->prepared)](EngineCore& on_strand) mutable {
          on_strand.Submit(id, std::move(prepared), done);
        });
    std::optional<Value> result = co_await Answer<Value>::Await(answer);
    if (!result.has_value()) co_return CancelledByCaller();
    guard.Answered();
    co_return *std::move(result);
  } catch (const std::bad_alloc&) {
    co_return core->too_little_memory;
  }
}

Scheduler::Done EndOf(const std::shared_ptr<EventQueue>& queue) {
  return
      [queue](absl::StatusOr<Result> result) { queue->End(std::move(result)); };
}

// Returns the stream of a request that the strand has accepted.
ResultStream StreamOf(const std::shared_ptr<EngineCore>& core, RequestId id,
                      const std::shared_ptr<QueueLimits::Place>& place,
                      const std::shared_ptr<EventQueue>& queue) {
  const auto read = [core, queue](int64_t num_received,
                                  EventQueue::Reader reader) {
    core->Post(
        [queue, num_received, reader = std::move(reader)](EngineCore&) mutable {
          queue->Read(num_received, std::move(reader));
        });
  };
  return ResultStream({.read = read, .cancel = Canceller(core, id, place)});
}

template <typename Given>
asio::awaitable<absl::StatusOr<ResultStream>> OpenStream(
    std::shared_ptr<EngineCore> core, Given request, StreamOptions options) {
  try {
    absl::StatusOr<OpenRequest> open = co_await Open(core, std::move(request));
    if (!open.ok()) co_return open.status();

    const auto answer = std::make_shared<Answer<absl::Status>>();
    const auto queue = std::make_shared<EventQueue>();
    const RequestId id = core->NextId();
    std::unique_ptr<SearchWatcher> writer =
        MakeStreamWriter(open->prepared, options, queue);
    CancelOnDestruction guard(Canceller(core, id, open->place));
    Submit(core, &guard,
           [id, queue, end = GivingBack(open->place, EndOf(queue)),
            send = SendTo<absl::Status>(answer, ContextEnded()),
            prepared = std::move(open->prepared),
            writer = std::move(writer)](EngineCore& on_strand) mutable {
             on_strand.Submit(id, std::move(prepared), end, std::move(writer));
             send(queue->error());
           });
    std::optional<absl::Status> accepted =
        co_await Answer<absl::Status>::Await(answer);
    if (!accepted.has_value()) co_return CancelledByCaller();
    ResultStream stream = StreamOf(core, id, open->place, queue);
    guard.Answered();
    if (!accepted->ok()) co_return *std::move(accepted);
    co_return std::move(stream);
  } catch (const std::bad_alloc&) {
    co_return core->too_little_memory;
  }
}

[[noreturn]] void ThrowCancelled() {
  throw boost::system::system_error(asio::error::operation_aborted);
}

asio::awaitable<void> RunDrain(std::shared_ptr<EngineCore> core) {
  const auto drained = std::make_shared<Answer<bool>>();
  std::function<void()> notify = [send = SendTo<bool>(drained, true)] {
    send(true);
  };
  core->Post([notify = std::move(notify)](EngineCore& on_strand) mutable {
    on_strand.Drain(std::move(notify));
  });
  const std::optional<bool> answer = co_await Answer<bool>::Await(drained);
  if (!answer.has_value()) ThrowCancelled();
}

asio::awaitable<void> RunShutdown(std::shared_ptr<EngineCore> core,
                                  std::string why) {
  const auto stopped = std::make_shared<Answer<bool>>();
  std::function<void()> notify = [send = SendTo<bool>(stopped, true)] {
    send(true);
  };
  core->Post([why = std::move(why),
              notify = std::move(notify)](EngineCore& on_strand) mutable {
    on_strand.Stop(why, std::move(notify));
  });
  const std::optional<bool> answer = co_await Answer<bool>::Await(stopped);
  if (!answer.has_value()) ThrowCancelled();
}

// Returns what `read` returns, on the strand.
template <typename Value>
asio::awaitable<Value> ReadOnStrand(std::shared_ptr<EngineCore> core,
                                    Value (*read)(EngineCore&)) {
  const auto answer = std::make_shared<Answer<Value>>();
  core->Post([send = SendTo<Value>(answer, Value()),
              read](EngineCore& on_strand) { send(read(on_strand)); });
  std::optional<Value> value = co_await Answer<Value>::Await(answer);
  if (!value.has_value()) ThrowCancelled();
  co_return *std::move(value);
}

}  // namespace

absl::StatusOr<Engine> Engine::Create(asio::any_io_executor executor,
                                      std::shared_ptr<StepExecutor> steps,
                                      const EngineOptions& options) {
  if (!executor) return InvalidArgument("executor must not be empty");
  if (steps == nullptr) return InvalidArgument("steps must not be null");
  RETURN_IF_ERROR(CheckDescription(steps->description()));
  RETURN_IF_ERROR(CheckEngineOptions(options, steps->description()));
  if (steps->max_plans_in_flight() < 1) {
    return InvalidArgument(
        "max_plans_in_flight() of steps must be at least 1, got ",
        steps->max_plans_in_flight());
  }
  try {
    std::shared_ptr<EngineCore> core =
        EngineCore::Create(executor, steps, options);
    if (core->TakeExecutor()) return Engine(std::move(core));
    return FailedPrecondition(
        "steps serve another engine, or one left them in the middle of "
        "requests; await its Shutdown() first");
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for an engine with ",
                             steps->description().num_pages, " pages");
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start the thread of step_timeout: ",
                             error.what());
  }
}

Engine::Engine(std::shared_ptr<EngineCore> core) : core_(std::move(core)) {}

Engine::~Engine() { EndRequests(); }

Engine& Engine::operator=(Engine&& other) {
  if (this == &other) return *this;
  EndRequests();
  core_ = std::move(other.core_);
  return *this;
}

void Engine::EndRequests() {
  if (core_ == nullptr) return;
  // In this order, so that requests end with the shutdown's reason, not with a
  // step's.
  core_->Post([](EngineCore& core) { core.Stop(kShutDown, [] {}); });
  core_->Interrupt();
}

Engine::Prepared::Prepared(std::unique_ptr<PreparedRequest> request,
                           std::string owner, std::weak_ptr<EngineCore> engine)
    : request_(std::move(request)),
      owner_(std::move(owner)),
      engine_(std::move(engine)) {}
Engine::Prepared::Prepared(Prepared&&) noexcept = default;
Engine::Prepared& Engine::Prepared::operator=(Prepared&&) noexcept = default;
Engine::Prepared::~Prepared() = default;

absl::StatusOr<Engine::Prepared> Engine::Prepare(Request request,
                                                 std::string owner) const try {
  const auto submitted = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(std::shared_ptr<const Constraint> constraint,
                   Complete(*core_, &request));
  return Prepared(MakePrepared(*core_, std::move(request),
                               std::move(constraint), submitted),
                  std::move(owner), core_);
} catch (const std::bad_alloc&) {
  return core_->too_little_memory;
}

asio::awaitable<absl::StatusOr<Result>> Engine::Generate(Request request) {
  return RunRequest(core_, std::move(request));
}

asio::awaitable<absl::StatusOr<Result>> Engine::Generate(Prepared request) {
  return RunRequest(core_, OwnedRequest{std::move(request.request_),
                                        std::move(request.owner_),
                                        std::move(request.engine_)});
}

asio::awaitable<absl::StatusOr<ResultStream>> Engine::Stream(
    Request request, StreamOptions options) {
  return OpenStream(core_, std::move(request), options);
}

asio::awaitable<absl::StatusOr<ResultStream>> Engine::Stream(
    Prepared request, StreamOptions options) {
  return OpenStream(
      core_,
      OwnedRequest{std::move(request.request_), std::move(request.owner_),
                   std::move(request.engine_)},
      options);
}

asio::awaitable<void> Engine::Drain() { return RunDrain(core_); }

asio::awaitable<void> Engine::Shutdown(std::string_view why) {
  return RunShutdown(core_, std::string(why));
}

asio::awaitable<int> Engine::ResetPrefixCache() {
  return ReadOnStrand<int>(
      core_, [](EngineCore& core) { return core.ResetPrefixCache(); });
}

int64_t Engine::num_foreground_waiting() const {
  return core_->limits->num_foreground_waiting();
}

asio::awaitable<EngineStats> Engine::Stats() {
  return ReadOnStrand<EngineStats>(
      core_, [](EngineCore& core) { return core.Stats(); });
}

}  // namespace espalier
