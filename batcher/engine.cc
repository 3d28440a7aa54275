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
#include "beam/constrain_to_items.h"
#include "beam/prepared_request.h"
#include "beam/strategy/stopping_criteria.h"
#include "exec_request/step_executor.h"
#include "request/bad_words.h"
#include "request/decoder_prompt.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

namespace asio = boost::asio;

// A request between Prepare, or the beginning of Generate and Stream, and the
// strand. Complete once it has `prepared`, which is made of the rest.
struct Engine::Prepared::State {
  std::string owner;
  std::weak_ptr<EngineCore> engine;  // the engine that prepared it
  std::chrono::steady_clock::time_point submitted;
  Request request;
  std::shared_ptr<ConstraintLanguage> language;  // null: nothing to compile
  std::shared_ptr<const Constraint> constraint = nullptr;  // once compiled
  std::unique_ptr<PreparedRequest> prepared = nullptr;
  std::shared_ptr<QueueLimits::Place> place = nullptr;  // null: not taken yet

  const Request& current() const {
    return prepared != nullptr ? prepared->request : request;
  }
};

namespace {

using PreparedState = Engine::Prepared::State;

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
  if (params->speculate.has_value() || !core.speculate.has_value()) return;
  if (CanDraftBy(core.speculate->method, *params)) {
    params->speculate = core.speculate;
  }
}

// Validates a request and sets its defaults. Returns the language of its
// constraint; null if it has none.
absl::StatusOr<std::shared_ptr<ConstraintLanguage>> Check(
    const EngineCore& core, Request* request) {
  if (request->continuations.empty()) {
    SpeculateByDefault(core, &request->params);
  }
  RETURN_IF_ERROR(Validate(core, request));
  return core.constraints->Find(*request);
}

// Throws std::bad_alloc.
// Errors: of an invalid request.
absl::StatusOr<std::unique_ptr<PreparedState>> TakeRequest(
    const std::shared_ptr<EngineCore>& core, Request request,
    std::string owner = {}) {
  const auto submitted = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(std::shared_ptr<ConstraintLanguage> language,
                   Check(*core, &request));
  return std::make_unique<PreparedState>(
      PreparedState{.owner = std::move(owner),
                    .engine = core,
                    .submitted = submitted,
                    .request = std::move(request),
                    .language = std::move(language)});
}

// Errors: kFailedPrecondition if it is null, or of another engine.
absl::Status CheckPreparedBy(const EngineCore& core,
                             const PreparedState* request) {
  if (request == nullptr) {
    return FailedPrecondition("a prepared request runs once, and this one ",
                              "was moved from");
  }
  if (request->engine.lock().get() == &core) return absl::OkStatus();
  return FailedPrecondition("another engine prepared this request");
}

// Throws std::bad_alloc.
// Errors: of its constraint.
absl::Status CompileConstraint(const EngineCore& core, PreparedState* owned) {
  const bool is_done =
      owned->prepared != nullptr || owned->constraint != nullptr;
  if (is_done) return absl::OkStatus();
  if (owned->language == nullptr) {
    ASSIGN_OR_RETURN(
        owned->constraint,
        ConstrainToItems(*core.items, core.tokenizer.get(),
                         core.description.vocab_size, owned->request));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      owned->constraint,
      core.constraints->CompileFor(owned->request, owned->language.get()));
  owned->language.reset();
  return absl::OkStatus();
}

// Does all work on the request that need not run on the strand, unless it was
// done. Throws std::bad_alloc; then the request is lost.
// REQUIRES: its constraint is compiled.
void BuildPrepared(const EngineCore& core, PreparedState* owned) {
  if (owned->prepared != nullptr) return;
  GiveSeed(&owned->request);
  owned->prepared = std::make_unique<PreparedRequest>(
      std::move(owned->request), core.tokenizer, &core.description,
      std::move(owned->constraint));
  owned->prepared->submitted = owned->submitted;
}

// Throws std::bad_alloc; then the request is lost.
// Errors: of its constraint.
absl::Status CompleteRequest(const EngineCore& core, PreparedState* owned) {
  RETURN_IF_ERROR(CompileConstraint(core, owned));
  BuildPrepared(core, owned);
  return absl::OkStatus();
}

// Takes a place for the request, unless it has one. Throws std::bad_alloc.
// Errors: kResourceExhausted if there is no place.
absl::Status TakePlace(const EngineCore& core, PreparedState* owned) {
  if (owned->place != nullptr) return absl::OkStatus();
  const Request& request = owned->current();
  const int64_t num_prompt_tokens =
      owned->prepared != nullptr    ? owned->prepared->num_prompt_tokens()
      : request.features != nullptr ? request.features->shape.num_rows
                                    : std::ssize(request.prompt_tokens);
  const int64_t num_tokens = num_prompt_tokens +
                             std::ssize(request.params.decoder_prompt_tokens) +
                             NumContinuationTokens(request);
  ASSIGN_OR_RETURN(owned->place, core.limits->Take(num_tokens, owned->owner,
                                                   request.params.priority >=
                                                       kBackgroundPriority));
  return absl::OkStatus();
}

// Takes over what a caller gives, a request or a prepared one. Throws
// std::bad_alloc.
// Errors: of an invalid request and its constraint; as CheckPreparedBy.
absl::StatusOr<std::unique_ptr<PreparedState>> Accept(
    const std::shared_ptr<EngineCore>& core, Request request) {
  absl::StatusOr<std::unique_ptr<PreparedState>> owned =
      TakeRequest(core, std::move(request));
  absl::Status status =
      owned.ok() ? CompileConstraint(*core, owned->get()) : owned.status();
  if (status.ok()) return owned;
  // Parts are for interfaces with other names, which call Prepare: a user's
  // ToString() would print them (base/field_error.h).
  status.ErasePayload("espalier/field_error");
  return status;
}
absl::StatusOr<std::unique_ptr<PreparedState>> Accept(
    const std::shared_ptr<EngineCore>& core,
    std::unique_ptr<PreparedState> owned) {
  RETURN_IF_ERROR(CheckPreparedBy(*core, owned.get()));
  RETURN_IF_ERROR(CompileConstraint(*core, owned.get()));
  return owned;
}

// Gives an accepted request what it needs to run: a place, and `prepared`.
// Throws std::bad_alloc. `owned` outlives the coroutine.
// Errors: as TakePlace; kFailedPrecondition if cancelling would not be safe;
// kCancelled if its caller was cancelled before, under
// throw_if_cancelled(false).
asio::awaitable<absl::Status> Open(std::shared_ptr<EngineCore> core,
                                   PreparedState* owned) {
  const absl::Status can_wait = co_await CheckCanWait();
  if (!can_wait.ok()) co_return can_wait;
  // Before the work on a request that may be refused.
  const absl::Status taken = TakePlace(*core, owned);
  if (!taken.ok()) co_return taken;
  BuildPrepared(*core, owned);
  owned->prepared->while_waiting = std::shared_ptr<const void>(
      nullptr, [place = owned->place](const void*) { place->LeaveQueue(); });
  co_return absl::OkStatus();
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
// Given is Request or std::unique_ptr<PreparedState>.
template <typename Given>
asio::awaitable<absl::StatusOr<Result>> RunRequest(
    std::shared_ptr<EngineCore> core, Given request) {
  try {
    absl::StatusOr<std::unique_ptr<PreparedState>> owned =
        Accept(core, std::move(request));
    if (!owned.ok()) co_return owned.status();
    const absl::Status opened = co_await Open(core, owned->get());
    if (!opened.ok()) co_return opened;
    PreparedState& open = **owned;

    using Value = absl::StatusOr<Result>;
    const auto answer = std::make_shared<Answer<Value>>();
    const RequestId id = core->NextId();
    CancelOnDestruction guard(Canceller(core, id, open.place));
    Submit(
        core, &guard,
        [id,
         done = GivingBack(open.place, SendTo<Value>(answer, ContextEnded())),
         prepared = std::move(*open.prepared)](EngineCore& on_strand) mutable {
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
    absl::StatusOr<std::unique_ptr<PreparedState>> owned =
        Accept(core, std::move(request));
    if (!owned.ok()) co_return owned.status();
    const absl::Status opened = co_await Open(core, owned->get());
    if (!opened.ok()) co_return opened;
    PreparedState& open = **owned;

    const auto answer = std::make_shared<Answer<absl::Status>>();
    const auto queue = std::make_shared<EventQueue>();
    const RequestId id = core->NextId();
    std::unique_ptr<SearchWatcher> writer =
        MakeStreamWriter(*open.prepared, options, queue);
    CancelOnDestruction guard(Canceller(core, id, open.place));
    Submit(core, &guard,
           [id, queue, end = GivingBack(open.place, EndOf(queue)),
            send = SendTo<absl::Status>(answer, ContextEnded()),
            prepared = std::move(*open.prepared),
            writer = std::move(writer)](EngineCore& on_strand) mutable {
             on_strand.Submit(id, std::move(prepared), end, std::move(writer));
             send(queue->error());
           });
    std::optional<absl::Status> accepted =
        co_await Answer<absl::Status>::Await(answer);
    if (!accepted.has_value()) co_return CancelledByCaller();
    ResultStream stream = StreamOf(core, id, open.place, queue);
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

Engine::Prepared::Prepared(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
Engine::Prepared::Prepared(Prepared&&) noexcept = default;
Engine::Prepared& Engine::Prepared::operator=(Prepared&&) noexcept = default;
Engine::Prepared::~Prepared() = default;

std::shared_ptr<ConstraintLanguage> Engine::Prepared::uncompiled() const {
  return state_->language;
}

const GenerationParams& Engine::Prepared::params() const {
  return state_->current().params;
}

std::optional<std::chrono::steady_clock::time_point>
Engine::Prepared::deadline() const {
  const std::optional<int64_t>& deadline_ms = params().deadline_ms;
  if (!deadline_ms) return std::nullopt;
  return state_->submitted + std::chrono::milliseconds(*deadline_ms);
}

absl::StatusOr<Engine::Prepared> Engine::Prepare(Request request,
                                                 PrepareOptions options) const
    try {
  ASSIGN_OR_RETURN(
      std::unique_ptr<PreparedState> owned,
      TakeRequest(core_, std::move(request), std::move(options.owner)));
  const ConstraintLanguage* const language = owned->language.get();
  const bool completes =
      options.compiles || language == nullptr || language->is_compiled();
  if (completes) RETURN_IF_ERROR(CompleteRequest(*core_, owned.get()));
  return Prepared(std::move(owned));
} catch (const std::bad_alloc&) {
  return core_->too_little_memory;
}

absl::Status Engine::TakePlace(Prepared* request) const try {
  RETURN_IF_ERROR(CheckPreparedBy(*core_, request->state_.get()));
  return espalier::TakePlace(*core_, request->state_.get());
} catch (const std::bad_alloc&) {
  return core_->too_little_memory;
}

ItemCatalogues& Engine::items() const { return *core_->items; }

void Engine::Compile(ConstraintLanguage* language) const {
  core_->constraints->Compile(language).IgnoreError();
}

bool Engine::HasCompiled(const ConstraintLanguage& language) {
  return language.is_compiled();
}

absl::Status Engine::Complete(Prepared* request) const try {
  RETURN_IF_ERROR(CheckPreparedBy(*core_, request->state_.get()));
  return CompleteRequest(*core_, request->state_.get());
} catch (const std::bad_alloc&) {
  return core_->too_little_memory;
}

asio::awaitable<absl::StatusOr<Result>> Engine::Generate(Request request) {
  return RunRequest(core_, std::move(request));
}

asio::awaitable<absl::StatusOr<Result>> Engine::Generate(Prepared request) {
  return RunRequest(core_, std::move(request.state_));
}

asio::awaitable<absl::StatusOr<ResultStream>> Engine::Stream(
    Request request, StreamOptions options) {
  return OpenStream(core_, std::move(request), options);
}

asio::awaitable<absl::StatusOr<ResultStream>> Engine::Stream(
    Prepared request, StreamOptions options) {
  return OpenStream(core_, std::move(request.state_), options);
}

asio::awaitable<void> Engine::Drain() { return RunDrain(core_); }

asio::awaitable<void> Engine::Shutdown(std::string_view why) {
  return RunShutdown(core_, std::string(why));
}

asio::awaitable<int> Engine::ResetPrefixCache() {
  return ReadOnStrand<int>(
      core_, [](EngineCore& core) { return core.ResetPrefixCache(); });
}

Engine::Pause::Pause(std::shared_ptr<EngineCore> core, int64_t number)
    : core_(std::move(core)), number_(number) {}

Engine::Pause::~Pause() {
  if (core_ == nullptr) return;
  core_->Post([pause = number_](EngineCore& core) { core.Resume(pause); });
}

void Engine::Pause::SetWeightsVersion(int64_t version) {
  core_->Post([version](EngineCore& core) { core.SetWeightsVersion(version); });
}

void Engine::Pause::BreakWeights(absl::Status why) {
  core_->Post([why = std::move(why)](EngineCore& core) mutable {
    core.BreakWeights(std::move(why));
  });
}

asio::awaitable<absl::StatusOr<Engine::Pause>> Engine::Pause::Begin(
    std::shared_ptr<EngineCore> core, RunningRequests running) {
  const auto paused = std::make_shared<Answer<absl::Status>>();
  Pause pause(core, core->NextPause());  // ends it, also while it is awaited
  core->Post(
      [number = pause.number_, running,
       send = SendTo<absl::Status>(paused, ContextEnded())](
          EngineCore& on_strand) { on_strand.Pause(number, running, send); });
  const std::optional<absl::Status> status =
      co_await Answer<absl::Status>::Await(paused);
  if (!status.has_value()) ThrowCancelled();
  if (!status->ok()) co_return *status;
  co_return std::move(pause);
}

asio::awaitable<absl::StatusOr<Engine::Pause>> Engine::PauseSteps(
    RunningRequests running) {
  return Pause::Begin(core_, running);
}

int64_t Engine::num_foreground_waiting() const {
  return core_->limits->num_foreground_waiting();
}

asio::awaitable<EngineStats> Engine::Stats() {
  return ReadOnStrand<EngineStats>(
      core_, [](EngineCore& core) { return core.Stats(); });
}

}  // namespace espalier
