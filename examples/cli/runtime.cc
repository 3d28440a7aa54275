#include "examples/cli/runtime.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "beam/stopping_criteria.h"
#include "espalier/generator_options.h"
#include "examples/cli/option_names.h"

namespace espalier::cli {
namespace {

// The template the options ask for.
absl::StatusOr<const PromptTemplate*> ChooseTemplate(
    const RuntimeOptions& options, const PromptTemplates& all) {
  const bool by_language = !options.from.empty() || !options.to.empty();
  if (!options.template_name.empty()) {
    if (by_language) {
      return InvalidArgument("--template and --from/--to exclude each other");
    }
    return all.Find(options.template_name);
  }
  if (!by_language) return &all.default_template();
  if (options.from.empty() || options.to.empty()) {
    return InvalidArgument(
        options.from.empty() ? "--to needs --from" : "--from needs --to",
        " beside it: the languages of the prompt and of the output");
  }
  return all.Find(options.from, options.to);
}

absl::Status CheckModel(const std::string& path) {
  constexpr char kWhatItIs[] =
      "; a model is a directory with config.json and model.safetensors";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return NotFound("--model: no such directory: ", path);
  }
  if (!std::filesystem::is_directory(path, error)) {
    return InvalidArgument("--model: ", path, " is a file", kWhatItIs);
  }
  if (!std::filesystem::exists(path + "/config.json", error)) {
    return InvalidArgument("--model: ", path, " has no config.json", kWhatItIs);
  }
  return absl::OkStatus();
}

// What the fields of GeneratorOptions are called on the command line.
std::string OptionName(std::string_view field) {
  if (field == "num_threads") return "--threads";
  if (field == "kv_cache_bytes") return "--kv-cache-mib";
  return Flag(field);
}

absl::StatusOr<BackendOptions> ResolveBackend(const RuntimeOptions& options) {
  GeneratorOptions generator = options.generator;
  if (options.kv_cache_mib.has_value()) {
    generator.kv_cache_bytes = int64_t{*options.kv_cache_mib} << 20;
  }
  return Resolve(generator, OptionName);
}

// The same error, with what an option of ours could do about it.
absl::Status AppendHint(const absl::Status& error) {
  if (!error.GetPayload(kTooFewPages).has_value()) return error;
  return MakeError(error.code(), Message(error), ", or raise --kv-cache-mib");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Load(
    const RuntimeOptions& options) {
  ASSIGN_OR_RETURN(const BackendOptions backend, ResolveBackend(options));
  RETURN_IF_ERROR(CheckModel(options.model));
  std::unique_ptr<Runtime> runtime(new Runtime());
  runtime->directory_ = options.model;
  RETURN_IF_ERROR(runtime->LoadText(options));
  ASSIGN_OR_RETURN(runtime->backend_, Backend::Load(options.model, backend));
  const std::shared_ptr<StepExecutor> steps = runtime->backend_->steps();
  if (runtime->has_tokenizer()) {
    RETURN_IF_ERROR(
        runtime->tokenizer_->CheckFits(steps->description().vocab_size));
  }
  EngineOptions engine;
  engine.scheduler.max_running = options.generator.max_running;
  engine.scheduler.max_step_tokens = backend.max_step_tokens;
  engine.tokenizer = runtime->tokenizer_;
  if (!options.trace.empty()) {
    runtime->trace_ =
        std::make_shared<TraceRecorder>(options.trace, runtime->tokenizer_);
    engine.scheduler.trace = runtime->trace_;
  }
  ASSIGN_OR_RETURN(
      runtime->engine_,
      Engine::Create(runtime->context_.get_executor(), steps, engine));
  return runtime;
}

absl::Status Runtime::LoadText(const RuntimeOptions& options) {
  ASSIGN_OR_RETURN(const ModelText text, ModelText::Load(directory_));
  if (text.tokenizer == nullptr) {
    if (options.template_name.empty() && options.from.empty() &&
        options.to.empty()) {
      return absl::OkStatus();
    }
    return InvalidArgument("--template, --from and --to need ", directory_,
                           "/tokenizer.model, which is not there");
  }
  ASSIGN_OR_RETURN(const PromptTemplate* chosen,
                   ChooseTemplate(options, *text.templates));
  template_ = *chosen;
  tokenizer_ = text.tokenizer;
  return absl::OkStatus();
}

absl::Status Runtime::CheckParams(GenerationParams params) const {
  constexpr int kShortestPrompt = 1;  // tokens
  // The default depends on the prompt, and what it limits is not wrong yet.
  if (!params.max_new_tokens && !params.allowed_sequences) {
    params.max_new_tokens = 1;
  }
  RETURN_IF_ERROR(ValidateParams(backend_->steps()->description(),
                                 kShortestPrompt, &params));
  return CheckStops(params, tokenizer_.get());
}

absl::StatusOr<Request> Runtime::MakeRequest(RequestBody body) const {
  Request request;
  request.params = std::move(body.params);
  request.caller_id = std::move(body.caller_id);
  if (!body.prompt) {
    request.prompt_tokens = std::move(body.prompt_tokens);
    return request;
  }
  if (!has_tokenizer()) {
    return FailedPrecondition("prompt needs a tokenizer, and ", directory_,
                              " has no tokenizer.model; use prompt_tokens");
  }
  ASSIGN_OR_RETURN(request.prompt_tokens,
                   PromptTokens(*body.prompt, *template_, *tokenizer_,
                                backend_->steps()->description().max_context));
  return request;
}

Answer Runtime::MakeAnswer(const GenerationParams& params,
                           absl::StatusOr<Result> result) const {
  Answer answer = {std::move(result), {}};
  if (!answer.result.ok()) answer.result = AppendHint(answer.result.status());
  if (!answer.result.ok() || !has_tokenizer()) return answer;
  answer.tokenizer = tokenizer_.get();
  answer.texts = TextsOf(*answer.result, params, tokenizer_);
  return answer;
}

absl::Status Runtime::OpenTrace() {
  return trace_ == nullptr ? absl::OkStatus() : trace_->Open();
}

absl::Status Runtime::CloseTrace() {
  return trace_ == nullptr ? absl::OkStatus() : trace_->Close();
}

boost::asio::awaitable<Answer> Runtime::Run(RequestBody body) {
  absl::StatusOr<Request> request = MakeRequest(std::move(body));
  if (!request.ok()) co_return Answer{request.status(), {}};
  const GenerationParams params = OnlyOfText(request->params);
  co_return MakeAnswer(params, co_await engine_->Generate(*std::move(request)));
}

boost::asio::awaitable<absl::StatusOr<ResultStream>> Runtime::Stream(
    RequestBody body) {
  absl::StatusOr<Request> request = MakeRequest(std::move(body));
  if (!request.ok()) co_return request.status();
  absl::StatusOr<ResultStream> stream =
      co_await engine_->Stream(*std::move(request));
  if (!stream.ok()) co_return AppendHint(stream.status());
  co_return std::move(stream);
}

void Runtime::EndRequests(std::string_view why) {
  boost::asio::co_spawn(context_, engine_->Shutdown(why),
                        boost::asio::detached);
}

}  // namespace espalier::cli
