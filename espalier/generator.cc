#include "espalier/generator.h"

#include <filesystem>
#include <new>
#include <optional>
#include <variant>

#include "base/status.h"
#include "base/thread_pool.h"
#include "batcher/engine.h"
#include "espalier/backend.h"
#include "espalier/generator_call.h"
#include "espalier/generator_core.h"
#include "espalier/model_text.h"
#include "executor/host/model_executor.h"

namespace espalier {

namespace asio = boost::asio;

namespace {

// What makes the answer to a call of what the engine gave.
struct Finisher {
  absl::StatusOr<Generation> operator()(absl::StatusOr<Result> result) const;

  GenerationParams params;  // OnlyOfText
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string advice;
};

absl::StatusOr<Generation> Finisher::operator()(
    absl::StatusOr<Result> result) const try {
  if (result.status().GetPayload(kTooFewPages).has_value()) {
    return MakeError(result.status().code(), Message(result.status()), advice);
  }
  RETURN_IF_ERROR(result.status());
  Generation generation;
  static_cast<Result&>(generation) = *std::move(result);
  generation.texts = TextsOf(generation, params, tokenizer);
  return generation;
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

// A request that has a place, ready for the engine.
struct OpenRequest {
  GeneratorCore::Place place;
  Request request;
  Finisher finisher;
};

absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 GeneratorCore::Place place,
                                 GenerationRequest from) {
  ASSIGN_OR_RETURN(Request request, core->MakeRequest(std::move(from)));
  GenerationParams params = OnlyOfText(request.params);
  return OpenRequest{std::move(place),
                     std::move(request),
                     {std::move(params), core->tokenizer(), core->advice()}};
}

absl::StatusOr<OpenRequest> Open(const std::shared_ptr<GeneratorCore>& core,
                                 GenerationRequest from) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place, core->TakePlace());
  return Open(core, std::move(place), std::move(from));
}

// The same, but waits for a place.
absl::StatusOr<OpenRequest> OpenInTime(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const GeneratorCore::Deadline& deadline) {
  ASSIGN_OR_RETURN(GeneratorCore::Place place,
                   core->WaitForPlace(options, deadline));
  return Open(core, std::move(place), std::move(from));
}

// On the calls thread, or on the caller's if nothing can run.
using Finished =
    absl::AnyInvocable<void(absl::StatusOr<Result>, OpenRequest) &&>;

// Throws std::bad_alloc, and then `finished` is not called.
void Submit(const std::shared_ptr<Call>& call,
            const std::shared_ptr<GeneratorCore>& core, OpenRequest open,
            Finished finished) {
  const auto shared = std::make_shared<OpenRequest>(std::move(open));
  call->Run<Result>(
      [core = core.get(), shared] {
        return core->engine().Generate(std::move(shared->request));
      },
      [shared,
       finished = std::move(finished)](absl::StatusOr<Result> result) mutable {
        std::move(finished)(std::move(result), std::move(*shared));
      });
}

using Promise = std::promise<absl::StatusOr<Generation>>;
using Future = std::future<absl::StatusOr<Generation>>;

// Errors as values of the future.
Future SubmitForFuture(const std::shared_ptr<GeneratorCore>& core,
                       absl::StatusOr<OpenRequest> open,
                       const CallOptions& options,
                       const GeneratorCore::Deadline& deadline) {
  const auto promise = std::make_shared<Promise>();
  Future future = promise->get_future();
  if (!open.ok()) {
    promise->set_value(open.status());
    return future;
  }
  try {
    Submit(Call::Make(core, options, deadline), core, *std::move(open),
           [promise](absl::StatusOr<Result> result, OpenRequest request) {
             { const GeneratorCore::Place ends = std::move(request.place); }
             promise->set_value(request.finisher(std::move(result)));
           });
  } catch (const std::bad_alloc&) {
    promise->set_value(OutOfMemory());
  }
  return future;
}

// A callback and what it is to be called with: all that its way takes memory
// for, made before the way begins.
struct Delivery {
  Generator::Callback callback;
  absl::StatusOr<Result> result = absl::UnknownError("");
  std::optional<OpenRequest> request = {};  // unset: there was nothing to run
};

// The place is free when the callback's turn has come: so those that wait for a
// slow one count as open.
void Deliver(GeneratorCore& core, std::shared_ptr<Delivery> delivery) {
  if (delivery->request.has_value()) delivery->request->place.AwaitCallback();
  core.callbacks().Post([delivery = std::move(delivery)] {
    if (!delivery->request.has_value()) {
      return delivery->callback(delivery->result.status());
    }
    { const GeneratorCore::Place ends = std::move(delivery->request->place); }
    delivery->callback(
        delivery->request->finisher(std::move(delivery->result)));
  });
}

// Throws std::bad_alloc; nothing is called then.
void SubmitForCallback(const std::shared_ptr<GeneratorCore>& core,
                       OpenRequest open,
                       const std::shared_ptr<Delivery>& delivery,
                       const CallOptions& options,
                       const GeneratorCore::Deadline& deadline) {
  Submit(Call::Make(core, options, deadline), core, std::move(open),
         [core = core.get(), delivery](absl::StatusOr<Result> result,
                                       OpenRequest request) mutable {
           delivery->result = std::move(result);
           delivery->request.emplace(std::move(request));
           Deliver(*core, std::move(delivery));
         });
}

// A request that streams.
class OpenStream {
 public:
  static absl::StatusOr<std::unique_ptr<OpenStream>> Open(
      const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
      const CallOptions& options, const StreamOptions& stream_options);

  // Calls `on_event` for what is told, and returns the end.
  absl::StatusOr<Generation> Read(const Generator::EventFunction& on_event);

 private:
  using Event = std::optional<StreamEvent>;

  OpenStream(std::shared_ptr<Call> call, OpenRequest request,
             ResultStream stream)
      : call_(std::move(call)),
        request_(std::move(request)),
        stream_(std::move(stream)) {}
  absl::StatusOr<Event> Next() try {
    return call_->Await<Event>([&] { return stream_.Next(); });
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  const std::shared_ptr<Call> call_;
  const OpenRequest request_;
  ResultStream stream_;  // its end ends the request
};

absl::StatusOr<std::unique_ptr<OpenStream>> OpenStream::Open(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const StreamOptions& stream_options) try {
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  ASSIGN_OR_RETURN(OpenRequest request, espalier::Open(core, std::move(from)));
  std::shared_ptr<Call> call = Call::Make(core, options, deadline);
  absl::StatusOr<ResultStream> stream = call->Await<ResultStream>([&] {
    return core->engine().Stream(std::move(request.request), stream_options);
  });
  if (!stream.ok()) return request.finisher(stream.status()).status();
  return std::unique_ptr<OpenStream>(
      new OpenStream(std::move(call), std::move(request), *std::move(stream)));
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

absl::StatusOr<Generation> OpenStream::Read(
    const Generator::EventFunction& on_event) {
  while (true) {
    absl::StatusOr<Event> event = Next();
    if (!event.ok()) return request_.finisher(event.status());
    if (!event->has_value()) return Internal("the stream has no result");
    StreamEvent& told = **event;
    if (Result* const result = std::get_if<Result>(&told)) {
      return request_.finisher(std::move(*result));
    }
    if (!on_event(told)) return StoppedByCaller();
  }
}

asio::awaitable<absl::StatusOr<EngineFigures>> ReadFigures(Engine& engine) {
  co_return co_await engine.Figures();
}

GeneratorFigures FiguresOf(const EngineFigures& engine) {
  const SchedulerFigures& scheduler = engine.scheduler;
  return {.num_running = engine.num_running,
          .num_waiting = engine.num_waiting,
          .num_pages_held = engine.num_pages_held,
          .num_steps = scheduler.num_steps,
          .num_prompt_tokens = scheduler.num_prompt_tokens,
          .num_generated_tokens = scheduler.num_generated_tokens,
          .peak_pages = scheduler.peak_pages,
          .forward_time = scheduler.forward_time,
          .select_time = scheduler.select_time,
          .plan_time = engine.plan_time,
          .advance_time = engine.advance_time,
          .step_time = engine.step_time};
}

absl::Status CheckMaxWaiting(const GeneratorOptions& options) {
  if (options.max_waiting >= 0) return absl::OkStatus();
  return InvalidArgument("max_waiting must be at least 0, got ",
                         options.max_waiting);
}

// What a model of one's own decides itself.
absl::Status CheckUnset(const GeneratorOptions& options) {
  if (options.device != "cpu") {
    return InvalidArgument("device must be cpu for a model of your own, got ",
                           options.device);
  }
  const std::pair<const char*, bool> given[] = {
      {"dtype", !options.dtype.empty()},
      {"kv_cache_bytes", options.kv_cache_bytes.has_value()},
      {"page_size", options.page_size.has_value()}};
  for (const auto& [field, is_given] : given) {
    if (is_given) {
      return InvalidArgument(field, " must be unset: a model of your own ",
                             "decides it");
    }
  }
  return absl::OkStatus();
}

EngineOptions EngineOptionsOf(const GeneratorOptions& options,
                              const BackendOptions& resolved,
                              std::shared_ptr<const Tokenizer> tokenizer) {
  EngineOptions engine;
  engine.scheduler.max_running = options.max_running;
  engine.scheduler.max_step_tokens = resolved.max_step_tokens;
  engine.tokenizer = std::move(tokenizer);
  return engine;
}

absl::Status CheckFits(const Tokenizer* tokenizer, const StepExecutor& steps) {
  if (tokenizer == nullptr) return absl::OkStatus();
  return tokenizer->CheckFits(steps.description().vocab_size);
}

}  // namespace

absl::StatusOr<Generator> Generator::Load(const std::string& directory,
                                          const GeneratorOptions& options) {
  RETURN_IF_ERROR(CheckMaxWaiting(options));
  ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return NotFound("no such directory: \"", directory, "\"");
  }
  ASSIGN_OR_RETURN(ModelText text, ModelText::Load(directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   Backend::Load(directory, resolved));
  RETURN_IF_ERROR(CheckFits(text.tokenizer.get(), *backend->steps()));
  const EngineOptions engine =
      EngineOptionsOf(options, resolved, text.tokenizer);
  ASSIGN_OR_RETURN(auto core,
                   GeneratorCore::Create({backend->steps(), std::move(text),
                                          engine, options.max_waiting,
                                          ", or raise kv_cache_bytes"}));
  return Generator(std::move(core));
}

absl::StatusOr<Generator> Generator::Create(
    std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
    const GeneratorOptions& options) {
  RETURN_IF_ERROR(CheckMaxWaiting(options));
  RETURN_IF_ERROR(CheckUnset(options));
  ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
  ASSIGN_OR_RETURN(auto threads, ThreadPool::Create(resolved.num_threads));
  ASSIGN_OR_RETURN(
      auto steps,
      ModelExecutor::Create(std::move(model), std::move(threads),
                            {.max_beams = resolved.max_beams,
                             .max_candidates = resolved.max_candidates,
                             .max_score_edits = resolved.max_score_edits}));
  RETURN_IF_ERROR(CheckFits(tokenizer.get(), *steps));
  const EngineOptions engine = EngineOptionsOf(options, resolved, tokenizer);
  ASSIGN_OR_RETURN(
      auto core,
      GeneratorCore::Create({std::move(steps), ModelText{std::move(tokenizer)},
                             engine, options.max_waiting}));
  return Generator(std::move(core));
}

Generator::Generator(std::shared_ptr<GeneratorCore> core)
    : core_(std::move(core)) {}

Generator::~Generator() {
  if (core_ != nullptr) core_->End();
}

Generator& Generator::operator=(Generator&& other) {
  if (this == &other) return *this;
  // What was there ends after the swap, with `ended`.
  const Generator ended(std::exchange(core_, std::move(other.core_)));
  return *this;
}

absl::StatusOr<Generation> Generator::Generate(GenerationRequest request,
                                               const CallOptions& options) try {
  const std::shared_ptr<GeneratorCore> core = core_;
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  ASSIGN_OR_RETURN(OpenRequest open, Open(core, std::move(request)));
  return open.finisher(Call::Make(core, options, deadline)->Await<Result>([&] {
    return core->engine().Generate(std::move(open.request));
  }));
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

std::future<absl::StatusOr<Generation>> Generator::GenerateAsync(
    GenerationRequest request, const CallOptions& options) {
  const std::shared_ptr<GeneratorCore> core = core_;
  return SubmitForFuture(core, Open(core, std::move(request)), options,
                         DeadlineOf(options.timeout));
}

void Generator::GenerateAsync(GenerationRequest request, Callback callback,
                              const CallOptions& options) {
  const std::shared_ptr<GeneratorCore> core = core_;
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  const auto delivery =
      std::make_shared<Delivery>(Delivery{std::move(callback)});
  try {
    absl::StatusOr<OpenRequest> open = Open(core, std::move(request));
    if (open.ok()) {
      return SubmitForCallback(core, *std::move(open), delivery, options,
                               deadline);
    }
    delivery->result = open.status();
  } catch (const std::bad_alloc&) {
    delivery->result = OutOfMemory();
  }
  Deliver(*core, delivery);
}

std::vector<absl::StatusOr<Generation>> Generator::GenerateAll(
    std::vector<GenerationRequest> requests, const CallOptions& options) {
  const std::shared_ptr<GeneratorCore> core = core_;
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  // So that nothing throws while requests run.
  std::vector<Future> futures;
  futures.reserve(requests.size());
  std::vector<absl::StatusOr<Generation>> answers;
  answers.reserve(requests.size());
  for (GenerationRequest& request : requests) {
    futures.push_back(SubmitForFuture(
        core, OpenInTime(core, std::move(request), options, deadline), options,
        deadline));
  }
  for (Future& future : futures) answers.push_back(future.get());
  return answers;
}

absl::StatusOr<Generation> Generator::Stream(
    GenerationRequest request, const EventFunction& on_event,
    const CallOptions& options, const StreamOptions& stream_options) {
  if (on_event == nullptr) return InvalidArgument("on_event is empty");
  const std::shared_ptr<GeneratorCore> core = core_;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<OpenStream> open,
      OpenStream::Open(core, std::move(request), options, stream_options));
  return open->Read(on_event);
}

void Generator::Shutdown(std::string_view why) {
  const std::shared_ptr<GeneratorCore> core = core_;
  core->Shutdown(why);
}

GeneratorFigures Generator::Figures() {
  const std::shared_ptr<GeneratorCore> core = core_;
  const auto call = Call::Make(core, {}, GeneratorCore::Deadline::max());
  const auto engine =
      call->Await<EngineFigures>([&] { return ReadFigures(core->engine()); });
  if (!engine.ok()) return GeneratorFigures();
  GeneratorFigures figures = FiguresOf(*engine);
  figures.num_pages = core->description().num_pages;
  core->CountRequests(&figures);
  return figures;
}

const ModelDescription& Generator::description() const {
  return core_->description();
}

std::shared_ptr<const Tokenizer> Generator::tokenizer() const {
  return core_->tokenizer();
}

Engine& Generator::engine() { return core_->engine(); }

absl::StatusOr<Request> Generator::MakeRequest(
    GenerationRequest request) const {
  return core_->MakeRequest(std::move(request));
}

}  // namespace espalier
