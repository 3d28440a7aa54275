#include "espalier/generator.h"

#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "base/field_error.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "batcher/engine.h"
#include "espalier/async_stream.h"
#include "espalier/backend.h"
#include "espalier/error_parts.h"
#include "espalier/generator_call.h"
#include "espalier/generator_core.h"
#include "espalier/load_catalogues.h"
#include "espalier/model_defaults.h"
#include "espalier/model_text.h"
#include "espalier/open_request.h"
#include "espalier/open_stream.h"
#include "espalier/run_prepared.h"
#include "executor/host/model_executor.h"
#include "model/model_directory.h"

namespace espalier {
namespace asio = boost::asio;

namespace {

// Returns the error without its parts (base/field_error.h), unless the call
// keeps them.
absl::Status Plain(absl::Status error, const CallOptions& options) {
  return options.keeps_error_parts ? error
                                   : WithoutErrorParts(std::move(error));
}

absl::StatusOr<Generation> Plain(absl::StatusOr<Generation> output,
                                 const CallOptions& options) {
  if (output.ok()) return output;
  return Plain(std::move(output).status(), options);
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
        return RunPrepared(core->engine(), std::move(shared->prepared.request));
      },
      [shared,
       finished = std::move(finished)](absl::StatusOr<Result> result) mutable {
        std::move(finished)(std::move(result), std::move(*shared));
      });
}

absl::StatusOr<Generation> AwaitGeneration(
    const std::shared_ptr<GeneratorCore>& core, OpenRequest open,
    const CallOptions& options, const GeneratorCore::Deadline& deadline) {
  return open.prepared.finish(
      Call::Make(core, options, deadline)->Await<Result>([&] {
        return RunPrepared(core->engine(), std::move(open.prepared.request));
      }));
}

using Promise = std::promise<absl::StatusOr<Generation>>;
using Future = std::future<absl::StatusOr<Generation>>;

// Errors as values of the future.
Future SubmitForFuture(const std::shared_ptr<GeneratorCore>& core,
                       absl::StatusOr<OpenRequest> open,
                       const CallOptions& options,
                       const GeneratorCore::Deadline& deadline,
                       const std::function<void()>& on_ended = nullptr) {
  const auto promise = std::make_shared<Promise>();
  Future future = promise->get_future();
  const auto answer = [promise, on_ended](absl::StatusOr<Generation> value) {
    if (on_ended != nullptr) on_ended();
    promise->set_value(std::move(value));
  };
  if (!open.ok()) {
    answer(Plain(std::move(open).status(), options));
    return future;
  }
  try {
    Submit(
        Call::Make(core, options, deadline), core, *std::move(open),
        [answer, options](absl::StatusOr<Result> result, OpenRequest request) {
          { const GeneratorCore::Place ends = std::move(request.place); }
          answer(Plain(request.prepared.finish(std::move(result)), options));
        });
  } catch (const std::bad_alloc&) {
    answer(OutOfMemory());
  }
  return future;
}

// A callback and what it is to be called with: all that its way takes memory
// for, made before the way begins.
struct Delivery {
  Generator::Callback callback;
  CallOptions options;
  absl::StatusOr<Result> result = absl::UnknownError("");
  std::optional<OpenRequest> request = {};  // unset: there was nothing to run
};

// The place is free when the callback's turn has come: so those that wait for a
// slow one count as open.
void Deliver(GeneratorCore& core, std::shared_ptr<Delivery> delivery) {
  if (delivery->request.has_value()) delivery->request->place.AwaitCallback();
  core.callbacks().Post([delivery = std::move(delivery)] {
    if (!delivery->request.has_value()) {
      return delivery->callback(
          Plain(std::move(delivery->result).status(), delivery->options));
    }
    { const GeneratorCore::Place ends = std::move(delivery->request->place); }
    delivery->callback(
        Plain(delivery->request->prepared.finish(std::move(delivery->result)),
              delivery->options));
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

// Opens a request of any kind and delivers its answer, or why there is none.
template <typename From>
void OpenAndDeliver(std::shared_ptr<GeneratorCore> core, From request,
                    Generator::Callback callback, const CallOptions& options) {
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  const auto delivery =
      std::make_shared<Delivery>(Delivery{std::move(callback), options});
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

asio::awaitable<absl::StatusOr<EngineStats>> ReadStats(Engine& engine) {
  co_return co_await engine.Stats();
}

// Checks that no option is set that a user's own model determines.
absl::Status CheckUnset(const GeneratorOptions& options) {
  if (options.device != "cpu") {
    return InvalidArgument("device must be cpu for a model of your own, got ",
                           options.device);
  }
  const std::pair<const char*, bool> given[] = {
      {"dtype", !options.dtype.empty()},
      {"weights", options.weights != "stored"},
      {"kv_cache_bytes", options.kv_cache_bytes.has_value()},
      {"host_cache_bytes", options.host_cache_bytes.has_value()},
      {"page_size", options.page_size.has_value()},
      {"draft_model", !options.draft_model.empty()},
      {"load_progress", options.load_progress != nullptr},
      {"load_note", options.load_note != nullptr},
      {"loaded_weights", options.loaded_weights != nullptr}};
  for (const auto& [field, is_given] : given) {
    if (is_given) {
      return InvalidField(OptionName{field},
                          " must be unset: a model of your own decides it");
    }
  }
  return absl::OkStatus();
}

// Opens a request of any kind and waits for its end.
template <typename From>
absl::StatusOr<Generation> OpenAndAwait(
    const std::shared_ptr<GeneratorCore>& core, From request,
    const CallOptions& options) try {
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  absl::StatusOr<OpenRequest> open = [&] {
    if constexpr (std::is_same_v<From, Request>) {
      return OpenInTime(core, std::move(request), options, deadline);
    } else {
      return Open(core, std::move(request));
    }
  }();
  if (!open.ok()) return Plain(std::move(open).status(), options);
  return Plain(AwaitGeneration(core, *std::move(open), options, deadline),
               options);
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

}  // namespace

Generator::Generator(std::shared_ptr<GeneratorCore> core)
    : core_(std::move(core)) {}

Generator::~Generator() {
  if (core_ != nullptr) core_->End();
}

Generator& Generator::operator=(Generator&& other) {
  if (this == &other) return *this;
  // The previous core ends with `ended`, after the swap.
  const Generator ended(std::exchange(core_, std::move(other.core_)));
  return *this;
}

absl::StatusOr<Generation> Generator::Generate(GenerationRequest request,
                                               const CallOptions& options) {
  const std::shared_ptr<GeneratorCore> core = core_;
  return OpenAndAwait(core, std::move(request), options);
}

absl::StatusOr<Generation> Generator::GenerateTokens(
    Request request, const CallOptions& options) {
  const std::shared_ptr<GeneratorCore> core = core_;
  return OpenAndAwait(core, std::move(request), options);
}

absl::StatusOr<Generation> Generator::Score(ScoreRequest request,
                                            const CallOptions& options) {
  const std::shared_ptr<GeneratorCore> core = core_;
  return OpenAndAwait(core, std::move(request), options);
}

std::future<absl::StatusOr<Generation>> Generator::GenerateAsync(
    GenerationRequest request, const CallOptions& options) {
  const std::shared_ptr<GeneratorCore> core = core_;
  return SubmitForFuture(core, Open(core, std::move(request)), options,
                         DeadlineOf(options.timeout));
}

void Generator::GenerateAsync(GenerationRequest request, Callback callback,
                              const CallOptions& options) {
  OpenAndDeliver(core_, std::move(request), std::move(callback), options);
}

void Generator::ScoreAsync(ScoreRequest request, Callback callback,
                           const CallOptions& options) {
  OpenAndDeliver(core_, std::move(request), std::move(callback), options);
}

std::vector<absl::StatusOr<Generation>> Generator::GenerateAll(
    std::vector<GenerationRequest> requests, const CallOptions& options,
    const std::function<void()>& on_ended) {
  const std::shared_ptr<GeneratorCore> core = core_;
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  // So that nothing throws while requests run.
  std::vector<Future> futures;
  futures.reserve(requests.size());
  std::vector<absl::StatusOr<Generation>> answers;
  answers.reserve(requests.size());
  try {
    for (GenerationRequest& request : requests) {
      futures.push_back(SubmitForFuture(
          core, OpenInTime(core, std::move(request), options, deadline),
          options, deadline, on_ended));
    }
  } catch (const std::bad_alloc&) {
    for (Future& future : futures) future.wait();  // they call `on_ended`
    throw;
  }
  for (Future& future : futures) answers.push_back(future.get());
  return answers;
}

absl::StatusOr<Generation> Generator::Stream(
    GenerationRequest request, const EventFunction& on_event,
    const CallOptions& options, const StreamOptions& stream_options) {
  if (on_event == nullptr) return InvalidArgument("on_event is empty");
  const std::shared_ptr<GeneratorCore> core = core_;
  absl::StatusOr<std::unique_ptr<OpenStream>> open =
      OpenStream::Open(core, std::move(request), options, stream_options);
  if (!open.ok()) return Plain(std::move(open).status(), options);
  return Plain((*open)->Read(on_event), options);
}

absl::StatusOr<AsyncStream> Generator::StreamAsync(
    GenerationRequest request, std::function<void()> on_ready,
    const CallOptions& options, const StreamOptions& stream_options) {
  if (on_ready == nullptr) return InvalidArgument("on_ready is empty");
  const std::shared_ptr<GeneratorCore> core = core_;
  absl::StatusOr<AsyncStream> stream = AsyncStream::Open(
      core, std::move(request), std::move(on_ready), options, stream_options);
  if (!stream.ok()) return Plain(stream.status(), options);
  return stream;
}

absl::Status Generator::Drain(absl::Duration timeout) {
  const std::shared_ptr<GeneratorCore> core = core_;
  return core->Drain(timeout);
}

void Generator::Shutdown(std::string_view why) {
  const std::shared_ptr<GeneratorCore> core = core_;
  core->Shutdown(why);
}

GeneratorStats Generator::Stats() {
  const std::shared_ptr<GeneratorCore> core = core_;
  const auto call = Call::Make(core, {}, GeneratorCore::Deadline::max());
  const auto engine =
      call->Await<EngineStats>([&] { return ReadStats(core->engine()); });
  if (!engine.ok()) return GeneratorStats();
  GeneratorStats stats;
  static_cast<EngineStats&>(stats) = *engine;
  core->CountRequests(&stats);
  return stats;
}

absl::StatusOr<int64_t> Generator::UpdateWeights(const WeightUpdate& update,
                                                 const UpdateOptions& options,
                                                 const CallOptions& call) {
  const std::shared_ptr<GeneratorCore> core = core_;
  auto version = core->UpdateWeights(update, options, call);
  if (!version.ok()) return Plain(version.status(), call);
  return version;
}

int64_t Generator::weights_version() const { return core_->weights_version(); }

const GenerationDefaults& Generator::defaults() const {
  return core_->defaults();
}

const ModelDescription& Generator::description() const {
  return core_->description();
}

int64_t Generator::max_open() const { return core_->max_open(); }
int64_t Generator::max_waiting_tokens() const {
  return core_->max_waiting_tokens();
}

std::shared_ptr<const Tokenizer> Generator::tokenizer() const {
  return core_->tokenizer();
}

std::vector<std::string> Generator::template_names() const {
  return core_->template_names();
}

std::shared_ptr<const ModelWeights> Generator::weights() const {
  return core_->weights();
}

Engine& Generator::engine() { return core_->engine(); }

ItemCatalogues& Generator::items() { return core_->engine().items(); }

absl::StatusOr<std::vector<TokenId>> Generator::MakePrompt(
    Prompt prompt, std::optional<int> max_tokens) const {
  return core_->MakePrompt(
      std::move(prompt),
      max_tokens.value_or(description().max_prompt_tokens()));
}

absl::StatusOr<const PromptTemplate*> Generator::prompt_template(
    const std::string& name) const {
  return core_->FindTemplate(name);
}

bool Generator::translates_sentences(const std::string& name) const {
  return core_->TranslatesSentences(name);
}

absl::StatusOr<const ChatPrompts*> Generator::chat_prompts() const {
  return core_->chat_prompts();
}

absl::StatusOr<EngineRequest> Generator::Prepare(
    GenerationRequest request) const {
  return core_->Prepare(std::move(request));
}

absl::StatusOr<EngineRequest> Generator::PrepareTokens(Request request) const {
  return core_->Prepare(std::move(request), /*takes_defaults=*/false);
}

absl::StatusOr<EngineRequest> Generator::PrepareScore(
    ScoreRequest request) const {
  return core_->Prepare(std::move(request));
}

absl::StatusOr<Generator> Generator::Load(const std::string& directory,
                                          const GeneratorOptions& options) {
  ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
  RETURN_IF_ERROR(CheckPreemptedPages(resolved));
  RETURN_IF_ERROR(CheckModelDirectory(directory));
  ASSIGN_OR_RETURN(GenerationDefaults defaults,
                   LoadModelDefaults(options.generation_config, directory));
  ASSIGN_OR_RETURN(ModelText text, ModelText::Load(directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   Backend::Load(directory, resolved));
  RETURN_IF_ERROR(FitDefaults(options.generation_config,
                              backend->steps()->description(),
                              text.tokenizer != nullptr, &defaults));
  EngineOptions engine = EngineOptionsOf(resolved, text.tokenizer);
  engine.max_waiting = resolved.max_waiting;
  ASSIGN_OR_RETURN(
      engine.items,
      LoadCatalogues(options.items, text.tokenizer.get(),
                     backend->steps()->description().vocab_size,
                     EndIdsByDefault(defaults, backend->steps()->description()),
                     backend->item_trie_builder()));
  ASSIGN_OR_RETURN(
      auto core,
      GeneratorCore::Create(
          {backend->steps(), std::move(text), engine, std::move(defaults),
           resolved.max_waiting,
           MessageParts(", or raise ", OptionName{"kv_cache_bytes"}), directory,
           backend->weights(), backend->weight_updater()}));
  return Generator(std::move(core));
}

absl::StatusOr<Generator> Generator::Create(
    std::shared_ptr<Model> model, std::shared_ptr<const Tokenizer> tokenizer,
    const GeneratorOptions& options) {
  RETURN_IF_ERROR(CheckUnset(options));
  ASSIGN_OR_RETURN(GenerationDefaults defaults,
                   LoadModelDefaults(options.generation_config, ""));
  ASSIGN_OR_RETURN(const BackendOptions resolved, Resolve(options));
  ASSIGN_OR_RETURN(auto threads, ThreadPool::Create(resolved.num_threads));
  ASSIGN_OR_RETURN(
      auto steps,
      ModelExecutor::Create(std::move(model), std::move(threads),
                            {.max_beams = resolved.max_beams,
                             .max_candidates = resolved.max_candidates,
                             .max_score_edits = resolved.max_score_edits}));
  RETURN_IF_ERROR(FitDefaults(options.generation_config, steps->description(),
                              tokenizer != nullptr, &defaults));
  EngineOptions engine = EngineOptionsOf(resolved, tokenizer);
  engine.max_waiting = resolved.max_waiting;
  ASSIGN_OR_RETURN(
      engine.items,
      LoadCatalogues(options.items, tokenizer.get(),
                     steps->description().vocab_size,
                     EndIdsByDefault(defaults, steps->description())));
  ASSIGN_OR_RETURN(
      auto core, GeneratorCore::Create(
                     {std::move(steps), ModelText{std::move(tokenizer)}, engine,
                      std::move(defaults), resolved.max_waiting}));
  return Generator(std::move(core));
}

}  // namespace espalier
