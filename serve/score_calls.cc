#include "serve/score_calls.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "batcher/engine.h"
#include "batcher/queue_limits.h"
#include "openai/error.h"
#include "openai/score_call.h"
#include "request/param_checks.h"
#include "serve/generation_calls.h"
#include "serve/prompt_runs.h"
#include "serve/prompt_tokens.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

using openai::PromptInput;
using openai::ScoreCall;
using EngineRequests = std::vector<EngineRequest>;

// A prompt of the call, ready to run.
struct PromptScore {
  Engine::Prepared request;
  // Makes the scores of what the engine gave (EngineRequest).
  std::function<absl::StatusOr<Generation>(absl::StatusOr<Result>)> finish;
};
using PromptScores = std::vector<PromptScore>;

Prompt PromptOf(const PromptInput& input, bool adds_special_tokens) {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&input)) {
    return Prompt(*tokens);
  }
  const std::string& text = std::get<std::string>(input);
  return adds_special_tokens ? Prompt(text) : Prompt::Raw(text);
}

// An error in the words of the call.
absl::Status InWordsOfScoring(const absl::Status& error) {
  const std::string message = Message(error);
  for (const auto& [of_engine, of_call] :
       {std::pair<std::string_view, std::string_view>("continuations", "items"),
        {"prompt_tokens", "query"},
        {"prompt", "query"},
        {"the prompt", "query"}}) {
    if (!message.starts_with(of_engine)) continue;
    const std::string_view rest =
        std::string_view(message).substr(of_engine.size());
    if (rest.starts_with(' ') || rest.starts_with('[')) {
      return WithMessage(error, Concat(of_call, rest));
    }
  }
  return error;
}

// One, of the query.
absl::StatusOr<EngineRequests> ItemRequest(const ScoreCall& call,
                                           const GenerationParams& params,
                                           const Generator& generator) {
  ScoreRequest request = {
      .prompt = PromptOf(call.query, call.add_special_tokens),
      .append_eos = call.append_eos,
      .params = params};
  for (const PromptInput& item : call.items) {
    request.continuations.emplace_back(item);
  }
  EngineRequests requests;
  ASSIGN_OR_RETURN(requests.emplace_back(),
                   generator.PrepareScore(std::move(request)));
  const int64_t num_tokens = NumContinuationTokens(requests[0].request);
  if (num_tokens <= openai::kMaxTokensOfScoreCall) return requests;
  return InvalidArgument("items must have at most ",
                         openai::kMaxTokensOfScoreCall,
                         " tokens together, got ", num_tokens);
}

// One of each item.
absl::StatusOr<EngineRequests> LabelRequests(const ScoreCall& call,
                                             const GenerationParams& params,
                                             const Generator& generator) {
  RETURN_IF_ERROR(CheckTokens("label_token_ids", call.label_token_ids,
                              generator.description().vocab_size));
  ASSIGN_OR_RETURN(
      const std::vector<TokenId> query,
      generator.MakePrompt(PromptOf(call.query, call.add_special_tokens)));
  EngineRequests requests;
  for (size_t i = 0; i < call.items.size(); ++i) {
    absl::StatusOr<std::vector<TokenId>> item =
        generator.MakePrompt(PromptOf(call.items[i], false));
    if (!item.ok()) return Annotate(item.status(), Concat("items[", i, "]"));
    std::vector<TokenId> tokens = call.item_first ? *item : query;
    const std::vector<TokenId>& rest = call.item_first ? query : *item;
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    ScoreRequest request = {.prompt = Prompt(std::move(tokens)),
                            .params = params};
    for (const TokenId label : call.label_token_ids) {
      request.continuations.emplace_back(std::vector<TokenId>{label});
    }
    ASSIGN_OR_RETURN(requests.emplace_back(),
                     generator.PrepareScore(std::move(request)));
  }
  return requests;
}

absl::StatusOr<std::shared_ptr<PromptScores>> MakeRequests(
    const ScoreCall& call, ServedModel& model, const Caller& caller,
    const std::string& id) {
  GenerationParams params = call.params;
  RETURN_IF_ERROR(AddOwner(caller, &params));
  const std::string owner = OwnerOf(caller);
  int64_t max_open = model.generator.max_open();
  if (!owner.empty()) max_open = QueueLimits::MaxOfOwner(max_open);
  if (call.scores_labels() && std::ssize(call.items) > max_open) {
    return InvalidArgument("items has ", call.items.size(), " prompts, each a ",
                           "request, and at most ", max_open,
                           " may run and wait (--max-running, --max-waiting)");
  }
  absl::StatusOr<EngineRequests> requests =
      call.scores_labels() ? LabelRequests(call, params, model.generator)
                           : ItemRequest(call, params, model.generator);
  if (!requests.ok()) return InWordsOfScoring(requests.status());
  const auto prompts = std::make_shared<PromptScores>();
  for (EngineRequest& request : *requests) {
    request.request.caller_id = TraceId(caller, id);
    absl::StatusOr<Engine::Prepared> prepared =
        model.generator.engine().Prepare(std::move(request.request), owner);
    if (!prepared.ok()) {
      return InWordsOfScoring(request.finish(prepared.status()).status());
    }
    prompts->push_back({*std::move(prepared), std::move(request.finish)});
  }
  return prompts;
}

// What the requests came to, in the call's order.
// Errors: that of the first prompt that has one.
asio::awaitable<absl::StatusOr<std::vector<Generation>>> RunAll(
    asio::any_io_executor executor, Engine& engine, PromptScores& requests) {
  std::vector<Generation> answers(requests.size());
  PromptRuns runs(executor);
  for (size_t i = 0; i < requests.size(); ++i) {
    runs.Start(static_cast<int>(i), engine, std::move(requests[i].request));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    std::optional<RunEvent> event = co_await runs.Next();
    absl::StatusOr<Generation> answer = requests[event->prompt].finish(
        std::get<absl::StatusOr<Result>>(std::move(event->what)));
    if (!answer.ok()) co_return InWordsOfScoring(answer.status());
    answers[event->prompt] = *std::move(answer);
  }
  co_return answers;
}

std::string WriteAnswer(const ScoreCall& call, const openai::AnswerHead& head,
                        std::vector<Generation> answers) {
  std::vector<ContinuationScore> scores;
  openai::ScoreCounts counts;
  for (Generation& answer : answers) {
    counts.read += answer.usage.num_prompt_tokens;
    counts.cached += answer.usage.num_cached_tokens;
    for (ContinuationScore& score : answer.continuations) {
      counts.read += std::ssize(score.tokens);
      scores.push_back(std::move(score));
    }
  }
  return openai::WriteScores(call, head, scores, counts);
}

}  // namespace

asio::awaitable<void> AnswerScoreCall(http::Exchange& exchange,
                                      ServedModel& model,
                                      const openai::Limits& limits,
                                      WorkerThread& tokenizing, Caller caller) {
  const auto refuse = [&](const absl::Status& status) {
    return exchange.Respond(
        ErrorResponse(openai::ErrorOf(status), caller.headers));
  };
  absl::StatusOr<ScoreCall> read =
      openai::ReadScoreCall(exchange.request().body, limits);
  exchange.TakeRequest();
  if (read.ok()) {
    const absl::Status known = CheckServed(model, read->model);
    if (!known.ok()) read = known;
  }
  if (!read.ok()) {
    co_await refuse(read.status());
    co_return;
  }
  const ScoreCall call = *std::move(read);
  if (!call.request_id.empty()) {
    TakeRequestId(call.request_id, &caller);
    exchange.set_note(LogNote(caller));
  }
  const openai::AnswerHead head = {"generative-scoring-" + caller.request_id,
                                   absl::ToUnixSeconds(absl::Now()),
                                   model.name};
  absl::StatusOr<std::shared_ptr<PromptScores>> requests;
  if (call.num_text_bytes() <= kMaxBytesOnIoThread) {
    requests = MakeRequests(call, model, caller, head.id);
  } else {
    WorkerThread::WorkFor<std::shared_ptr<PromptScores>> work =
        [call, &model, caller, id = head.id] {
          return MakeRequests(call, model, caller, id);
        };
    requests =
        co_await tokenizing.Run<std::shared_ptr<PromptScores>>(std::move(work));
  }
  if (!requests.ok()) {
    co_await refuse(requests.status());
    co_return;
  }
  MeteredCall metered(&model.meter, std::ssize(**requests));
  absl::StatusOr<std::vector<Generation>> answers = co_await RunAll(
      exchange.executor(), model.generator.engine(), **requests);
  if (!answers.ok()) {
    co_await refuse(answers.status());
    co_return;
  }
  http::Response response;
  response.headers = caller.headers;
  response.body = WriteAnswer(call, head, *std::move(answers));
  if (co_await exchange.Respond(std::move(response))) metered.SetAnswered();
}

}  // namespace espalier::serve
