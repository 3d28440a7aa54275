#include "examples/cli/runtime.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "base/wording.h"
#include "beam/finish_rule.h"
#include "beam/request_text.h"

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

// What texts depend on; the whole may be large.
GenerationParams OnlyOfText(const GenerationParams& params) {
  GenerationParams text;
  text.stop = params.stop;
  text.include_stop = params.include_stop;
  text.min_new_tokens = params.min_new_tokens;
  return text;
}

// The same error, with what an option of ours could do about it.
absl::Status WithAdvice(const absl::Status& error) {
  if (!error.GetPayload(kTooFewPages).has_value()) return error;
  return MakeError(error.code(), Message(error), ", or raise --kv-cache-mib");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Load(
    const RuntimeOptions& options) {
  ASSIGN_OR_RETURN(const BackendOptions backend, Resolve(options.device));
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
  engine.scheduler.max_running = options.max_running;
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
  const std::string path = directory_ + "/tokenizer.model";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (options.template_name.empty() && options.from.empty() &&
        options.to.empty()) {
      return absl::OkStatus();
    }
    return InvalidArgument("--template, --from and --to need ", path,
                           ", which is not there");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(path));
  ASSIGN_OR_RETURN(const PromptTemplates templates,
                   PromptTemplates::Load(directory_, *tokenizer));
  ASSIGN_OR_RETURN(const PromptTemplate* chosen,
                   ChooseTemplate(options, templates));
  template_ = *chosen;
  tokenizer->MarkSpecial(templates.tokens());
  tokenizer_ = std::move(tokenizer);
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
  if (!IsUtf8(*body.prompt)) return InvalidArgument("prompt is not UTF-8");
  const int max_context = backend_->steps()->description().max_context;
  absl::StatusOr<std::vector<TokenId>> tokens =
      template_->Apply(*body.prompt, *tokenizer_, max_context);
  if (absl::IsOutOfRange(tokens.status())) {
    return InvalidArgument("prompt must fit into the model's context of ",
                           Counted(max_context, "token"), ": ",
                           Message(tokens.status()));
  }
  RETURN_IF_ERROR(tokens.status());
  request.prompt_tokens = *std::move(tokens);
  return request;
}

Answer Runtime::MakeAnswer(const GenerationParams& params,
                           absl::StatusOr<Result> result) const {
  Answer answer = {std::move(result), {}};
  if (!answer.result.ok()) answer.result = WithAdvice(answer.result.status());
  if (!answer.result.ok() || !has_tokenizer()) return answer;
  answer.tokenizer = tokenizer_.get();
  const RequestText text(params, tokenizer_);
  for (const Hypothesis& hypothesis : answer.result->hypotheses) {
    answer.texts.push_back(text.Of(hypothesis.tokens));
  }
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
  if (!stream.ok()) co_return WithAdvice(stream.status());
  co_return std::move(stream);
}

void Runtime::EndRequests(std::string_view why) {
  boost::asio::co_spawn(context_, engine_->Shutdown(why),
                        boost::asio::detached);
}

}  // namespace espalier::cli
