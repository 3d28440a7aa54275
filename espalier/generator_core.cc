#include "espalier/generator_core.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/field_error.h"
#include "base/memory.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "base/wording.h"
#include "espalier/generator_call.h"
#include "request/decoder_prompt.h"
#include "request/resolve_defaults.h"

namespace espalier {

namespace asio = boost::asio;

namespace {

PromptTemplate DefaultTemplate(const ModelText& text) {
  if (text.templates.has_value()) return text.templates->default_template();
  PromptTemplate text_alone;
  if (text.tokenizer != nullptr) {
    text_alone.before_text = text.tokenizer->before_text();
    text_alone.after_text = text.tokenizer->after_text();
  }
  return text_alone;
}

// Starts a thread that keeps running after std::bad_alloc. asio throws it if it
// lacks the memory to continue a coroutine; the operation of that coroutine has
// then ended.
std::thread ThreadOf(asio::io_context& context) {
  return std::thread([&context] {
    const auto until_stopped = asio::make_work_guard(context);
    while (!context.stopped()) {
      try {
        context.run();
      } catch (const std::bad_alloc&) {
      }
    }
  });
}

// Makes the answer to a call of the engine's result. Does not throw.
struct Finisher {
  absl::StatusOr<Generation> operator()(absl::StatusOr<Result> result) const
      try {
    absl::StatusOr<Generation> answer =
        MakeGeneration(std::move(result), form, defaults, advice);
    if (answer.ok()) return answer;
    return NameDefaults(answer.status(), defaults, origin);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  TextForm form;
  NamedValues defaults;  // that its params have taken
  std::string origin;    // source of the defaults
  std::string advice;
};

// Adds the tokens that TakeForcedBos took off. Does not throw.
struct ScoreFinisher {
  absl::StatusOr<Generation> operator()(absl::StatusOr<Result> result) const
      try {
    absl::StatusOr<Generation> answer = finish(std::move(result));
    if (!answer.ok()) return answer;
    for (const size_t i : with_forced_bos) {
      ContinuationScore& score = answer->continuations.at(i);
      score.tokens.insert(score.tokens.begin(), forced_bos);
      score.log_probs.insert(score.log_probs.begin(), 0);
      score.ranks.insert(score.ranks.begin(), 1);
    }
    return answer;
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  std::function<absl::StatusOr<Generation>(absl::StatusOr<Result>)> finish;
  TokenId forced_bos;
  std::vector<size_t> with_forced_bos;
};

asio::awaitable<absl::StatusOr<bool>> DrainEngine(Engine& engine) {
  co_await engine.Drain();
  co_return true;
}

absl::Status TooLate(std::string_view left, absl::Duration timeout) {
  return UntilThereIsMemory([&] {
    return MakeError(absl::StatusCode::kDeadlineExceeded,
                     "the drain's timeout, ", absl::FormatDuration(timeout),
                     ", has passed before ", left, " ended");
  });
}

asio::awaitable<absl::StatusOr<bool>> ShutDownEngine(Engine& engine,
                                                     std::string why) {
  co_await engine.Shutdown(why);
  co_return true;
}

}  // namespace

absl::StatusOr<std::shared_ptr<GeneratorCore>> GeneratorCore::Create(
    GeneratorParts parts) {
  try {
    auto core = std::make_shared<GeneratorCore>(std::move(parts));
    RETURN_IF_ERROR(core->Start());
    return core;
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("not enough memory for a generator");
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start a generator: ", error.what());
  }
}

GeneratorCore::GeneratorCore(GeneratorParts parts)
    : weights_(std::exchange(parts.weights, nullptr)),
      parts_(std::move(parts)),
      max_open_(int64_t{parts_.engine.scheduler.max_running} +
                parts_.max_waiting),
      default_template_(DefaultTemplate(parts_.text)) {}

absl::Status GeneratorCore::Start() {
  ASSIGN_OR_RETURN(engine_, Engine::Create(engine_context_.get_executor(),
                                           parts_.steps, parts_.engine));
  // The first timer of a context takes descriptors.
  const asio::steady_timer first_timer(calls_context_);
  callbacks_ = std::make_unique<CallbackThread>();
  engine_thread_ = ThreadOf(engine_context_);
  calls_thread_ = ThreadOf(calls_context_);
  return absl::OkStatus();
}

GeneratorCore::~GeneratorCore() { StopThreads(); }

void GeneratorCore::StopThreads() {
  calls_context_.stop();
  if (calls_thread_.joinable()) calls_thread_.join();
  engine_context_.stop();
  if (engine_thread_.joinable()) engine_thread_.join();
}

absl::StatusOr<GeneratorCore::Place> GeneratorCore::TakePlace() {
  const std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(WhyClosed());
  if (!has_room()) {
    ++num_refused_;
    return MakeFieldError(absl::StatusCode::kResourceExhausted,
                          "too many requests are open: ", num_open_,
                          ", of which `max_waiting`, ", parts_.max_waiting,
                          ", wait until one of `max_running`, ",
                          parts_.engine.scheduler.max_running, ", ends");
  }
  ++num_open_;
  return Place(shared_from_this());
}

absl::StatusOr<GeneratorCore::Place> GeneratorCore::WaitForPlace(
    const CallOptions& options, const Deadline& deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool is_callback = callbacks_->IsThisThread();
  const auto waits_for_itself = [&] {
    return is_callback && !has_room() && num_awaiting_callback_ == num_open_;
  };
  const auto is_over = [&] {
    return !WhyClosed().ok() || has_room() || waits_for_itself();
  };
  if (deadline == Deadline::max()) {
    changed_.wait(lock, options.stop, is_over);
  } else {
    changed_.wait_until(lock, options.stop, deadline, is_over);
  }
  RETURN_IF_ERROR(WhyClosed());
  const bool is_stopped = options.stop.stop_requested();
  if (!is_stopped && waits_for_itself()) {
    return ResourceExhausted("all of the ", num_open_,
                             " requests that may be open wait for their "
                             "callbacks, behind the one that waits for room");
  }
  if (!is_stopped && has_room()) {
    ++num_open_;
    return Place(shared_from_this());
  }
  lock.unlock();  // these wait for memory
  return is_stopped ? StoppedByCaller() : TimedOut(options.timeout);
}

void GeneratorCore::CountRequests(GeneratorStats* stats) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats->num_open = num_open_;
  stats->num_refused = num_refused_;
}

void GeneratorCore::GivePlaceBack(bool awaits_callback) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --num_open_;
  if (awaits_callback) --num_awaiting_callback_;
  changed_.notify_all();
}

void GeneratorCore::CountAwaitingCallback() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++num_awaiting_callback_;
  changed_.notify_all();
}

std::optional<int64_t> GeneratorCore::BeginOperation() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (has_ended_) return std::nullopt;
  operations_.insert(num_operations_);
  return num_operations_++;
}

void GeneratorCore::EndOperation(int64_t operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  operations_.erase(operation);
  changed_.notify_all();
}

absl::StatusOr<const PromptTemplate*> GeneratorCore::FindTemplate(
    const std::string& name) const {
  if (name.empty()) return &default_template_;
  if (parts_.text.templates.has_value()) {
    return parts_.text.templates->Find(name);
  }
  return NotFound("no prompt template ", BytesInQuotes(name),
                  ": a model of one's own has the default alone");
}

bool GeneratorCore::TranslatesSentences(
    const std::string& template_name) const {
  const auto found = FindTemplate(template_name);
  return found.ok() && parts_.text.TranslatesSentences(**found);
}

absl::StatusOr<std::vector<TokenId>> GeneratorCore::MakePrompt(
    Prompt prompt, int max_tokens) const {
  if (prompt.kind_ == Prompt::Kind::kTokens ||
      prompt.kind_ == Prompt::Kind::kChat) {
    return std::move(prompt.tokens_);
  }
  if (tokenizer() == nullptr) {
    return MakeFieldError(
        absl::StatusCode::kFailedPrecondition,
        "`prompt` is text, and there is no tokenizer; give tokens");
  }
  const PromptTemplate raw;
  const PromptTemplate* prompt_template = &raw;
  if (prompt.kind_ == Prompt::Kind::kText) {
    ASSIGN_OR_RETURN(prompt_template, FindTemplate(prompt.template_name_));
  }
  return PromptTokens(prompt.text_, *prompt_template, *tokenizer(),
                      description(), max_tokens, prompt.parse_special_);
}

EngineRequest GeneratorCore::WithFinish(Request request,
                                        NamedValues defaults) const {
  TextForm form = TextForm::Of(request, description(), tokenizer());
  std::string origin = defaults.empty() ? "" : parts_.defaults.path;
  return EngineRequest{std::move(request),
                       Finisher{std::move(form), std::move(defaults),
                                std::move(origin), advice()}};
}

absl::Status GeneratorCore::CheckReadsTokens() const {
  const auto& encoder = description().encoder;
  if (!encoder || !encoder->features) return absl::OkStatus();
  return InvalidArgument(
      parts_.directory.empty() ? "the model" : parts_.directory,
      " reads audio, not texts or tokens: use Transcriber, espalier transcribe "
      "or the server's /v1/audio/transcriptions");
}

absl::StatusOr<std::optional<TokenId>> GeneratorCore::FirstOutputOf(
    const Prompt& prompt) const {
  if (prompt.kind_ != Prompt::Kind::kText) return std::nullopt;
  ASSIGN_OR_RETURN(const PromptTemplate* const prompt_template,
                   FindTemplate(prompt.template_name_));
  return prompt_template->first_output;
}

absl::StatusOr<EngineRequest> GeneratorCore::Prepare(
    GenerationRequest from) const {
  RETURN_IF_ERROR(CheckReadsTokens());
  const bool is_chat = from.prompt.kind_ == Prompt::Kind::kChat;
  Request request;
  ASSIGN_OR_RETURN(const std::optional<TokenId> first_output,
                   FirstOutputOf(from.prompt));
  const std::string_view forced =
      ForceFirstOutput(description(), first_output, &from.params);
  if (from.given && !forced.empty()) from.given->push_back(forced);
  ASSIGN_OR_RETURN(
      request.prompt_tokens,
      MakePrompt(std::move(from.prompt), description().max_prompt_tokens()));
  if (is_chat) request.num_continued = 0;
  request.params = std::move(from.params);
  return Prepare(std::move(request), from.takes_defaults, from.given);
}

absl::StatusOr<EngineRequest> GeneratorCore::Prepare(
    Request request, bool takes_defaults,
    std::optional<std::span<const std::string_view>> given) const {
  if (!request.num_continued &&
      parts_.text.AreAnswered(request.prompt_tokens)) {
    request.num_continued = 0;
  }
  static const GenerationDefaults kNone;
  ASSIGN_OR_RETURN(NamedValues taken,
                   CompleteRequest(takes_defaults ? defaults() : kNone, given,
                                   tokenizer().get(), description(), &request));
  return WithFinish(std::move(request), std::move(taken));
}

absl::StatusOr<ContinuationContext> GeneratorCore::ContextOf(
    const ScoreRequest& request) const {
  const GenerationParams& params = request.params;
  ContinuationContext context = {.tokenizer = tokenizer().get()};
  context.decoder_prompt = params.decoder_prompt;
  context.is_output = description().encoder.has_value();
  // Tokens between the prompt and a continuation may spell anything.
  const bool follows_prompt = !context.is_output &&
                              params.decoder_prompt_tokens.empty() &&
                              !params.forced_bos_token_id;
  if (!follows_prompt) return context;
  const Prompt& prompt = request.prompt;
  if (prompt.kind_ == Prompt::Kind::kRaw) {
    context.prompt = prompt.text_;
  } else if (prompt.kind_ == Prompt::Kind::kText) {
    ASSIGN_OR_RETURN(const PromptTemplate* const prompt_template,
                     FindTemplate(prompt.template_name_));
    if (prompt_template->after_text.empty()) context.prompt = prompt.text_;
  }
  return context;
}

absl::StatusOr<EngineRequest> GeneratorCore::Prepare(ScoreRequest from) const {
  RETURN_IF_ERROR(CheckReadsTokens());
  if (from.continuations.empty()) {
    return InvalidField("`continuations` must not be empty", Got("[]"));
  }
  const std::vector<TokenId>& eos = description().eos_token_ids;
  if (from.append_eos && eos.empty()) {
    return InvalidField("`append_eos` must be false for a model without an EOS",
                        Got("true"));
  }
  ASSIGN_OR_RETURN(const ContinuationContext context, ContextOf(from));
  ASSIGN_OR_RETURN(const std::optional<TokenId> first_output,
                   FirstOutputOf(from.prompt));
  const bool is_forced =
      !ForceFirstOutput(description(), first_output, &from.params).empty();
  Request request;
  ASSIGN_OR_RETURN(
      request.prompt_tokens,
      MakePrompt(std::move(from.prompt), description().max_prompt_tokens()));
  request.params = std::move(from.params);
  ASSIGN_OR_RETURN(NamedValues taken,
                   ResolveDecoderPrompt(tokenizer().get(), description(),
                                        defaults(), &request.params));
  ASSIGN_OR_RETURN(request.continuations,
                   ContinuationTokens(context, from.continuations));
  if (from.append_eos) {
    for (std::vector<int64_t>& tokens : request.continuations) {
      tokens.push_back(eos[0]);
    }
  }
  std::optional<TokenId> forced;
  if (is_forced && request.params.forced_bos_token_id) {
    forced = first_output;
    request.params.forced_bos_token_id.reset();
  } else {
    forced =
        ForcedBosByDefault(defaults(), description(),
                           std::ssize(request.prompt_tokens), request.params);
    if (!forced || request.params.forced_bos_token_id) {
      return WithFinish(std::move(request), std::move(taken));
    }
    taken.emplace_back("forced_bos_token_id", std::to_string(*forced));
  }
  ASSIGN_OR_RETURN(std::vector<size_t> with_forced_bos,
                   TakeForcedBos(*forced, &request));
  EngineRequest made = WithFinish(std::move(request), std::move(taken));
  if (with_forced_bos.empty()) return made;
  made.finish = ScoreFinisher{std::move(made.finish), *forced,
                              std::move(with_forced_bos)};
  return made;
}

absl::StatusOr<std::vector<size_t>> GeneratorCore::TakeForcedBos(
    TokenId forced, Request* request) const {
  std::vector<size_t> with_forced_bos;
  for (size_t i = 0; i < request->continuations.size(); ++i) {
    std::vector<int64_t>& tokens = request->continuations[i];
    if (tokens.empty() || tokens[0] != forced) continue;
    if (tokens.size() == 1) {
      return InvalidField(
          "`continuations`[", i,
          "] must have more than the model's `forced_bos_token_id`, ", forced,
          Got("[", forced, "]"));
    }
    tokens.erase(tokens.begin());
    with_forced_bos.push_back(i);
  }
  std::vector<int64_t>& prompt = request->params.decoder_prompt_tokens;
  prompt.clear();  // at most the decoder's start
  if (description().encoder) {
    const std::vector<TokenId>& start = description().encoder->decoder_prompt;
    prompt.assign(start.begin(), start.end());
  }
  prompt.push_back(forced);
  return with_forced_bos;
}

absl::StatusOr<const ChatPrompts*> GeneratorCore::chat_prompts() {
  RETURN_IF_ERROR(CheckReadsTokens());
  std::call_once(chat_flag_, [&] {
    chat_ = parts_.directory.empty()
                ? FailedPrecondition("a model of your own has no chat template")
                : ChatPrompts::Load(parts_.directory, tokenizer(), "a chat");
  });
  RETURN_IF_ERROR(chat_.status());
  return chat_->get();
}

absl::Status GeneratorCore::WhyClosed() const {
  if (closed_by_.has_value()) return *closed_by_;
  return drained_by_.value_or(absl::OkStatus());
}

absl::Status GeneratorCore::Drain(absl::Duration timeout) {
  const Deadline deadline = DeadlineOf(timeout);
  const bool is_callback = callbacks_->IsThisThread();
  absl::Status drained_by = UntilThereIsMemory([] {
    return absl::UnavailableError(
        "the generator drains and takes no more requests");
  });
  std::optional<int64_t> num_late;  // that did not end in time
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!drained_by_.has_value()) drained_by_ = std::move(drained_by);
    changed_.notify_all();
    const auto num_left = [&] {
      return num_open_ - (is_callback ? num_awaiting_callback_ : 0);
    };
    const auto is_over = [&] {
      return closed_by_.has_value() || num_left() == 0;
    };
    if (deadline == Deadline::max()) {
      changed_.wait(lock, is_over);
    } else if (!changed_.wait_until(lock, deadline, is_over)) {
      num_late = num_left();
    }
    if (closed_by_.has_value()) return absl::OkStatus();
  }
  if (num_late.has_value()) {
    return UntilThereIsMemory(
        [&] { return TooLate(Pluralize(*num_late, "request"), timeout); });
  }
  const absl::Status status = UntilThereIsMemory([&] {
    return Call::Make(shared_from_this(), {.timeout = timeout}, deadline)
        ->Await<bool>([&] { return DrainEngine(*engine_); })
        .status();
  });
  if (absl::IsDeadlineExceeded(status)) {
    return TooLate("requests of engine()", timeout);
  }
  return absl::IsResourceExhausted(status) ? status : absl::OkStatus();
}

absl::StatusOr<int64_t> GeneratorCore::UpdateWeights(
    const WeightUpdate& update, const UpdateOptions& options,
    const CallOptions& call) try {
  const Deadline deadline = DeadlineOf(call.timeout);
  if (parts_.updater == nullptr) {
    return FailedPrecondition("a model of your own has no weights to update");
  }
  if (options.version && *options.version < 1) {
    return InvalidField("`version` must be at least 1", Got(*options.version));
  }
  const std::unique_lock<std::mutex> updating(updating_, std::try_to_lock);
  if (!updating.owns_lock()) {
    return FailedPrecondition("another update of the weights runs");
  }
  ASSIGN_OR_RETURN(WeightUpdater::Apply apply, parts_.updater->Prepare(update));
  ASSIGN_OR_RETURN(
      Engine::Pause pause,
      Call::Make(shared_from_this(), call, deadline)->Await<Engine::Pause>([&] {
        return engine_->PauseSteps(options.running);
      }));
  const absl::Status applied = std::move(apply)();
  if (!applied.ok()) {
    pause.BreakWeights(absl::UnavailableError(
        Concat("an update left parts of older weights: ", applied.message())));
    return applied;
  }
  std::shared_ptr<const ModelWeights> replaced;  // destroyed without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  weights_version_ = options.version.value_or(weights_version_ + 1);
  replaced = std::move(weights_);
  pause.SetWeightsVersion(weights_version_);
  return weights_version_;
} catch (const std::bad_alloc&) {
  return ResourceExhausted("not enough memory for an update of the weights");
}

void GeneratorCore::Close(std::string_view why) {
  // Retries the allocation without the lock: freeing memory may need the lock.
  absl::Status closed_by =
      UntilThereIsMemory([&] { return absl::CancelledError(ToAbsl(why)); });
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_by_.has_value()) return;
  closed_by_ = std::move(closed_by);
  changed_.notify_all();
}

void GeneratorCore::Shutdown(std::string_view why) {
  Close(why);
  absl::Status status;
  do {
    status = UntilThereIsMemory([&] {
      return Call::Make(shared_from_this(), {}, Deadline::max())
          ->Await<bool>(
              [&] { return ShutDownEngine(*engine_, std::string(why)); })
          .status();
    });
  } while (absl::IsResourceExhausted(status));
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t num_before = num_operations_;
    changed_.wait(lock, [&] {
      return operations_.empty() || *operations_.begin() >= num_before;
    });
  }
  callbacks_->Drain();
}

void GeneratorCore::End() {
  Shutdown("the generator is destroyed");
  {
    std::unique_lock<std::mutex> lock(mutex_);
    has_ended_ = true;
    changed_.wait(lock, [&] { return operations_.empty(); });
  }
  StopThreads();
  engine_.reset();
  callbacks_->Drain();
}

}  // namespace espalier
