#include "serve/generation_calls.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "batcher/engine.h"
#include "openai/answer.h"
#include "openai/error.h"
#include "openai/event_writer.h"
#include "openai/resolve_params.h"
#include "request/generation_defaults.h"
#include "serve/prompt_runs.h"
#include "serve/prompt_tokens.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

class CallAnswerer {
 public:
  CallAnswerer(http::Exchange* exchange, ServedModel* model,
               WorkerThread* tokenizing, RunningCalls* running, Caller caller)
      : exchange_(exchange),
        model_(model),
        tokenizing_(tokenizing),
        running_(running),
        caller_(std::move(caller)) {}

  asio::awaitable<void> Answer(openai::Api api, const openai::Limits& limits);

 private:
  asio::awaitable<absl::StatusOr<std::vector<PromptRequest>>> MakePrompts(
      int64_t num_bytes);
  asio::awaitable<absl::Status> AnswerWhole();
  asio::awaitable<absl::Status> AnswerInEvents();
  asio::awaitable<absl::Status> RunAll(
      std::vector<openai::PromptAnswer>* answers);
  absl::StatusOr<openai::PromptAnswer> Finish(int prompt,
                                              absl::StatusOr<Result> result);
  // Says which of several prompts it is of, and of what the call left open
  // where that is from.
  absl::Status ErrorOfPrompt(size_t prompt, const absl::Status& status) const {
    return NameDefaults(OfPrompt(status, prompt, call_),
                        prompts_[prompt].parts.defaults,
                        "the defaults of the server or its model");
  }
  // Ends `runs` where a client aborts the call.
  RunningCalls::Entry MakeAbortable(PromptRuns* runs);
  std::vector<openai::PromptParts> TakeParts();
  void SetRequestId(const std::string& id);
  const Tokenizer* tokenizer() const {
    return model_->generator.tokenizer().get();
  }

  http::Exchange* const exchange_;
  ServedModel* const model_;
  WorkerThread* const tokenizing_;
  RunningCalls* const running_;
  Caller caller_;
  openai::Call call_;
  openai::AnswerHead head_;
  std::vector<PromptRequest> prompts_;
  bool is_answered_ = false;  // wholly, and not by an error
};

asio::awaitable<void> CallAnswerer::Answer(openai::Api api,
                                           const openai::Limits& limits) {
  const auto respond = [&](const openai::Error& error) {
    return exchange_->Respond(ErrorResponse(error, caller_.headers));
  };
  const auto refuse = [&](const absl::Status& status) {
    return respond(openai::ErrorOf(status, &call_));
  };
  absl::StatusOr<openai::Call> call =
      openai::ReadCall(api, exchange_->request().body, limits);
  const int64_t num_bytes = std::ssize(exchange_->TakeRequest().body);
  if (!call.ok()) {
    co_await respond(openai::ErrorOf(call.status()));  // in its words already
    co_return;
  }
  call_ = *std::move(call);
  call_.tool_calls.format = model_->tool_call_format;
  if (caller_.is_stored && call_.stream) {
    co_await refuse(
        InvalidArgument("stream must be false in a batch, got true"));
    co_return;
  }
  if (!call_.request_id.empty()) SetRequestId(call_.request_id);
  if (call_.truncate_prompt_tokens && num_bytes > limits.max_list_elements) {
    // A text is tokenized before it is cut, and has at most as many tokens as
    // bytes.
    co_await refuse(InvalidArgument(
        "truncate_prompt_tokens must come in a body of at most ",
        limits.max_list_elements, " bytes (--max-list-elements), got ",
        num_bytes));
    co_return;
  }
  const absl::Status known = CheckServed(*model_, call_.model);
  if (!known.ok()) {
    co_await refuse(known);
    co_return;
  }
  const absl::StatusOr<NamedValues> resolved =
      MakeDecoderPrompt(model_->generator, &call_);
  if (!resolved.ok()) {
    co_await refuse(resolved.status());
    co_return;
  }
  std::string warning =
      openai::SearchWarning(call_, model_->generator.defaults());
  if (!warning.empty()) call_.warnings.push_back(std::move(warning));
  head_ = {openai::AnswerId(api, caller_.request_id),
           absl::ToUnixSeconds(absl::Now()), model_->name};
  absl::StatusOr<std::vector<PromptRequest>> prompts =
      co_await MakePrompts(num_bytes);
  if (!prompts.ok()) {
    co_await refuse(prompts.status());
    co_return;
  }
  prompts_ = *std::move(prompts);
  for (PromptRequest& prompt : prompts_) {
    NamedValues& defaults = prompt.parts.defaults;
    defaults.insert(defaults.begin(), resolved->begin(), resolved->end());
  }
  MeteredCall metered(&model_->meter, NumRows(prompts_));
  absl::Status answered;
  if (call_.stream) {
    answered = co_await AnswerInEvents();
  } else {
    answered = co_await AnswerWhole();
  }
  if (is_answered_) metered.SetAnswered();
  if (!answered.ok()) co_await refuse(answered);
}

asio::awaitable<absl::StatusOr<std::vector<PromptRequest>>>
CallAnswerer::MakePrompts(int64_t num_bytes) {
  // The model's context bounds the time that others take.
  if (!call_.truncate_prompt_tokens || num_bytes <= kMaxBytesOnIoThread) {
    co_return MakePromptRequests(call_, *model_, caller_, head_.id);
  }
  WorkerThread::WorkFor<std::vector<PromptRequest>> work =
      [call = call_, model = model_, caller = caller_, id = head_.id] {
        return MakePromptRequests(call, *model, caller, id);
      };
  co_return co_await tokenizing_->Run<std::vector<PromptRequest>>(
      std::move(work));
}

void CallAnswerer::SetRequestId(const std::string& id) {
  TakeRequestId(id, &caller_);
  exchange_->set_note(LogNote(caller_));
}

RunningCalls::Entry CallAnswerer::MakeAbortable(PromptRuns* runs) {
  std::vector<std::string> ids = {TraceId(caller_, caller_.request_id)};
  if (head_.id != caller_.request_id) {
    ids.push_back(TraceId(caller_, head_.id));
  }
  return running_->Add(std::move(ids), [interrupt = runs->Interrupter()] {
    interrupt(absl::AbortedError("the request was aborted (/abort_requests)"));
  });
}

std::vector<openai::PromptParts> CallAnswerer::TakeParts() {
  std::vector<openai::PromptParts> parts;
  for (PromptRequest& prompt : prompts_) {
    parts.push_back(std::move(prompt.parts));
  }
  return parts;
}

absl::StatusOr<openai::PromptAnswer> CallAnswerer::Finish(
    int prompt, absl::StatusOr<Result> result) {
  if (prompt < 0) return result.status();
  absl::StatusOr<Generation> generation =
      prompts_[prompt].engine.finish(std::move(result));
  if (!generation.ok()) {
    return ErrorOfPrompt(prompt, generation.status());
  }
  std::vector<std::string> texts = std::move(generation->texts);
  return openai::PromptAnswer{*std::move(generation), std::move(texts)};
}

// Errors: that of the first prompt that has one.
asio::awaitable<absl::Status> CallAnswerer::RunAll(
    std::vector<openai::PromptAnswer>* answers) {
  Engine& engine = model_->generator.engine();
  answers->resize(prompts_.size());
  PromptRuns runs(exchange_->executor());
  const RunningCalls::Entry abortable = MakeAbortable(&runs);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    runs.Start(static_cast<int>(i), engine,
               std::move(prompts_[i].engine.request));
  }
  for (size_t i = 0; i < prompts_.size(); ++i) {
    std::optional<RunEvent> run_event = co_await runs.Next();
    absl::StatusOr<openai::PromptAnswer> answer =
        Finish(run_event->prompt,
               std::get<absl::StatusOr<Result>>(std::move(run_event->what)));
    if (!answer.ok()) co_return answer.status();
    (*answers)[run_event->prompt] = *std::move(answer);
  }
  co_return absl::OkStatus();
}

asio::awaitable<absl::Status> CallAnswerer::AnswerWhole() {
  std::vector<openai::PromptAnswer> answers;
  const absl::Status run = co_await RunAll(&answers);
  if (!run.ok()) co_return run;
  http::Response response;
  response.headers = caller_.headers;
  response.body =
      openai::WriteAnswer(call_, head_, TakeParts(), answers, tokenizer());
  is_answered_ = co_await exchange_->Respond(std::move(response));
  co_return absl::OkStatus();
}

// Errors: before the first event.
asio::awaitable<absl::Status> CallAnswerer::AnswerInEvents() {
  Engine& engine = model_->generator.engine();
  std::vector<ResultStream> streams;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    EngineRequest& prompt = prompts_[i].engine;
    absl::StatusOr<ResultStream> stream = co_await engine.Stream(
        std::move(prompt.request), {.beams = call_.stream_beams});
    if (!stream.ok()) {
      co_return ErrorOfPrompt(i, prompt.finish(stream.status()).status());
    }
    streams.push_back(*std::move(stream));
  }
  const std::unique_ptr<openai::EventWriter> writer =
      openai::MakeEventWriter(call_, head_, TakeParts(), tokenizer());
  PromptRuns runs(exchange_->executor());
  const RunningCalls::Entry abortable = MakeAbortable(&runs);
  for (size_t i = 0; i < streams.size(); ++i) {
    runs.Start(static_cast<int>(i), std::move(streams[i]));
  }
  runs.StartPings();
  if (!co_await exchange_->BeginEvents(caller_.headers)) {
    co_return absl::OkStatus();
  }
  std::string events = writer->Begin();
  for (size_t num_running = streams.size(); num_running > 0;) {
    if (!events.empty() && !co_await exchange_->SendEvents(events)) {
      co_return absl::OkStatus();
    }
    std::optional<RunEvent> run_event = co_await runs.Next();
    if (!run_event.has_value()) {
      events = openai::kPing;
      continue;
    }
    if (const auto* event = std::get_if<StreamEvent>(&run_event->what)) {
      events = writer->Add(run_event->prompt, *event);
      continue;
    }
    absl::StatusOr<openai::PromptAnswer> answer =
        Finish(run_event->prompt,
               std::get<absl::StatusOr<Result>>(std::move(run_event->what)));
    if (!answer.ok()) {
      events = writer->Fail(openai::ErrorOf(answer.status(), &call_));
      co_await exchange_->SendEvents(events);
      co_return absl::OkStatus();
    }
    events = writer->Finish(run_event->prompt, *answer);
    --num_running;
  }
  events += writer->End();
  is_answered_ = co_await exchange_->SendEvents(events);
  co_return absl::OkStatus();
}

}  // namespace

http::Response ErrorResponse(const openai::Error& error,
                             std::vector<http::Header> headers) {
  http::Response response;
  response.status = error.http_status;
  response.headers = std::move(headers);
  if (error.retry_after_s > 0) {
    response.headers.push_back(
        {"Retry-After", std::to_string(error.retry_after_s)});
  }
  if (error.is_final) response.headers.push_back({"x-should-retry", "false"});
  response.body = openai::WriteError(error);
  return response;
}

asio::awaitable<void> AnswerCall(http::Exchange& exchange, openai::Api api,
                                 ServedModel& model,
                                 const openai::Limits& limits,
                                 WorkerThread& tokenizing,
                                 RunningCalls& running, Caller caller) {
  CallAnswerer answerer(&exchange, &model, &tokenizing, &running,
                        std::move(caller));
  co_await answerer.Answer(api, limits);
}

}  // namespace espalier::serve
