#include "serve/score_calls.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/field_error.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "batcher/queue_limits.h"
#include "openai/error.h"
#include "openai/score_call.h"
#include "request/param_checks.h"
#include "serve/generation_calls.h"
#include "serve/prompt_runs.h"
#include "serve/prompt_tokens.h"
#include "serve/ready_call.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

using openai::ScoreCall;
using EngineRequests = std::vector<EngineRequest>;

// A prompt of the call, ready to run.
struct PromptScore {
  Engine::Prepared request;
  // Makes the scores of what the engine gave (EngineRequest).
  std::function<absl::StatusOr<Generation>(absl::StatusOr<Result>)> finish;
};
using PromptScores = std::vector<PromptScore>;

Prompt PromptOf(const TextOrTokens& input, bool adds_special_tokens) {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&input)) {
    return Prompt(*tokens);
  }
  const std::string& text = std::get<std::string>(input);
  return adds_special_tokens ? Prompt(text) : Prompt::Raw(text);
}

// Rewrites an error with the field names of the call, whose continuations are
// `continuations`.
absl::Status InWordsOfScoring(const absl::Status& error,
                              std::string_view continuations = "items") {
  const std::optional<FieldError> wrong = FieldErrorOf(error);
  if (!wrong) return error;
  for (const auto& [of_engine, of_call] :
       {std::pair<std::string_view, std::string_view>("continuations",
                                                      continuations),
        {"prompt_tokens", "query"},
        {"prompt", "query"},
        {"the prompt", "query"}}) {
    if (wrong->field == of_engine) return WithField(error, of_call);
  }
  return error;
}

// One, of the query.
absl::StatusOr<EngineRequests> ItemRequest(const ScoreCall& call,
                                           const GenerationParams& params,
                                           const Generator& generator) {
  ScoreRequest request = {
      .prompt = PromptOf(call.query, call.add_special_tokens),
      .continuations = call.items,
      .append_eos = call.append_eos,
      .params = params};
  EngineRequests requests;
  ASSIGN_OR_RETURN(requests.emplace_back(),
                   generator.PrepareScore(std::move(request)));
  const int64_t num_tokens = NumContinuationTokens(requests[0].request);
  if (num_tokens <= openai::kMaxTokensOfScoreCall) return requests;
  return InvalidField("`items` must have at most ",
                      Limit(openai::kMaxTokensOfScoreCall), " tokens together",
                      Got(num_tokens));
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
    if (!item.ok())
      return AnnotateField(item.status(), Concat("items[", i, "]"));
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
    return InvalidField("`items` has ", call.items.size(),
                        " prompts, each a request, and at most ",
                        Limit(max_open),
                        " may run and wait (--max-running, --max-waiting)");
  }
  absl::StatusOr<EngineRequests> requests =
      call.scores_labels() ? LabelRequests(call, params, model.generator)
                           : ItemRequest(call, params, model.generator);
  const std::string_view continuations =
      call.scores_labels() ? "label_token_ids" : "items";
  if (!requests.ok()) {
    return InWordsOfScoring(requests.status(), continuations);
  }
  const auto prompts = std::make_shared<PromptScores>();
  for (EngineRequest& request : *requests) {
    request.request.caller_id = TraceId(caller, id);
    absl::StatusOr<Engine::Prepared> prepared =
        model.generator.engine().Prepare(std::move(request.request),
                                         {.owner = owner});
    if (!prepared.ok()) {
      return InWordsOfScoring(request.finish(prepared.status()).status(),
                              continuations);
    }
    prompts->push_back({*std::move(prepared), std::move(request.finish)});
  }
  return prompts;
}

// Runs the requests; their results, in the call's order.
// Errors: that of the first prompt that has one, or of all by `runs`.
asio::awaitable<absl::StatusOr<std::vector<Result>>> RunAll(
    PromptRuns& runs, Engine& engine, PromptScores& requests) {
  std::vector<Result> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    runs.Start(static_cast<int>(i), engine, std::move(requests[i].request));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    std::optional<RunEvent> event = co_await runs.Next();
    auto result = std::get<absl::StatusOr<Result>>(std::move(event->what));
    if (!result.ok() && event->request < 0) co_return result.status();
    if (!result.ok()) {
      const auto& finish = requests[event->request].finish;
      co_return InWordsOfScoring(finish(std::move(result)).status());
    }
    results[event->request] = *std::move(result);
  }
  co_return results;
}

absl::StatusOr<std::string> WriteAnswer(const ScoreCall& call,
                                        const openai::AnswerHead& head,
                                        const PromptScores& requests,
                                        std::vector<Result> results) {
  std::vector<ContinuationScore> scores;
  openai::ScoreCounts counts;
  for (size_t i = 0; i < results.size(); ++i) {
    absl::StatusOr<Generation> answer =
        requests[i].finish(std::move(results[i]));
    if (!answer.ok()) return InWordsOfScoring(answer.status());
    counts.read += answer->usage.num_prompt_tokens;
    counts.cached += answer->usage.num_cached_tokens;
    for (ContinuationScore& score : answer->continuations) {
      counts.read += std::ssize(score.tokens);
      scores.push_back(std::move(score));
    }
  }
  return openai::WriteScores(call, head, scores, counts);
}

// True if making the prompts takes long: the query is read once for each item.
bool HasLongPrompts(const ScoreCall& call) {
  const auto* const ids = std::get_if<std::vector<TokenId>>(&call.query);
  const int64_t num_ids = ids == nullptr ? 0 : std::ssize(*ids);
  return call.num_text_bytes() + num_ids * std::ssize(call.items) >
         kMaxBytesOnIoThread;
}

absl::StatusOr<std::shared_ptr<const ScoreCall>> ReadCall(
    std::string_view body, const openai::Limits& limits,
    const ServedModel& model) {
  ASSIGN_OR_RETURN(ScoreCall call, openai::ReadScoreCall(body, limits));
  RETURN_IF_ERROR(CheckServesTexts(model, call.model));
  return std::make_shared<const ScoreCall>(std::move(call));
}

}  // namespace

asio::awaitable<void> AnswerScoreCall(http::Exchange& exchange,
                                      ServedModel& model,
                                      const openai::Limits& limits,
                                      CallResources resources, Caller caller) {
  using Call = std::shared_ptr<const ScoreCall>;
  using Requests = std::shared_ptr<PromptScores>;
  const auto refuse = [&](const absl::Status& status) {
    return exchange.Respond(
        ErrorResponse(openai::ErrorOf(status), caller.headers));
  };
  std::string body = exchange.TakeRequest().body;
  const bool is_long = body.size() > kMaxCallBytesOnIoThread;
  const absl::StatusOr<HeldMemory::Share> of_body =
      resources.memory->Take(is_long ? kHeldPerBodyByte * std::ssize(body) : 0);
  if (!of_body.ok()) {
    co_await refuse(of_body.status());
    co_return;
  }
  WorkerThread::WorkFor<Call> read = [body = std::move(body), &limits, &model] {
    return ReadCall(body, limits, model);
  };
  const absl::StatusOr<Call> call_or =
      co_await resources.worker->RunIf<Call>(is_long, std::move(read));
  if (!call_or.ok()) {
    co_await refuse(call_or.status());
    co_return;
  }
  const Call call = *call_or;
  if (!call->request_id.empty()) {
    TakeRequestId(call->request_id, &caller);
    exchange.set_note(LogNote(caller));
  }
  const openai::AnswerHead head = {"generative-scoring-" + caller.request_id,
                                   absl::ToUnixSeconds(absl::Now()),
                                   model.name};
  WorkerThread::WorkFor<Requests> make = [call, &model, caller, id = head.id] {
    return MakeRequests(*call, model, caller, id);
  };
  const absl::StatusOr<Requests> made =
      co_await resources.worker->RunIf<Requests>(
          is_long || HasLongPrompts(*call), std::move(make));
  if (!made.ok()) {
    co_await refuse(made.status());
    co_return;
  }
  const Requests requests = *made;
  MeteredCall metered(&model.meter, std::ssize(*requests));
  PromptRuns runs(exchange.executor());
  const RunningCalls::Entry abortable =
      MakeAbortable(resources.running, caller, head.id, &runs);
  absl::StatusOr<std::vector<Result>> results =
      co_await RunAll(runs, model.generator.engine(), *requests);
  if (!results.ok()) {
    co_await refuse(results.status());
    co_return;
  }
  int64_t num_scores = 0;
  for (const Result& result : *results) {
    for (const ContinuationScore& score : result.continuations) {
      num_scores += std::ssize(score.tokens);
    }
  }
  WorkerThread::WorkFor<std::string> write =
      [call, head, requests, results = *std::move(results)]() mutable {
        return WriteAnswer(*call, head, *requests, std::move(results));
      };
  absl::StatusOr<std::string> answer =
      co_await resources.worker->RunIf<std::string>(
          num_scores > kMaxScoresOnIoThread, std::move(write));
  if (!answer.ok()) {
    co_await refuse(answer.status());
    co_return;
  }
  http::Response response;
  response.headers = caller.headers;
  response.body = *std::move(answer);
  if (co_await exchange.Respond(std::move(response))) metered.SetAnswered();
}

}  // namespace espalier::serve
