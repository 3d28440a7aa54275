#include "serve/route_answers.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "batcher/prometheus_text.h"
#include "espalier/chat.h"
#include "espalier/update_weights.h"
#include "openai/abort.h"
#include "openai/listing.h"
#include "openai/resolve_params.h"
#include "openai/weight_update_call.h"
#include "serve/page.h"
#include "serve/prompt_tokens.h"
#include "serve/ready_call.h"
#include "serve/score_calls.h"
#include "serve/server_metrics.h"
#include "serve/text_calls.h"
#include "serve/trace_answer.h"

namespace espalier::serve::routes {
namespace {

// Keeps browsers from guessing the type of pages with pictures.
const http::Header kNoSniff = {"X-Content-Type-Options", "nosniff"};

openai::Error TraceError(const absl::Status& status) {
  // Also where it was there and took too much memory.
  const bool is_gone =
      status.code() == absl::StatusCode::kNotFound || IsPermanent(status);
  if (!is_gone) return openai::ErrorOf(status);
  return openai::MakeHttpError(404, Message(status));
}

// Rows that run or wait.
boost::asio::awaitable<int64_t> NumRows(ServerState& server) {
  ServedModel* const model = server.model;
  if (model == nullptr) co_return 0;
  co_return RowsOf(*co_await model->latest.Read(absl::ZeroDuration()));
}

std::optional<openai::SpeechCard> SpeechOf(const ServedModel& model,
                                           const SpeechOptions& options) {
  if (!ReadsAudio(model)) return std::nullopt;
  const absl::StatusOr<Transcriber>& transcriber = model.transcriber;
  return openai::SpeechCard{
      .has_words = transcriber.ok() && transcriber->times_words(),
      .translates = transcriber.ok() && transcriber->is_multilingual(),
      .max_audio_seconds = options.max_audio_seconds,
      .max_audio_bytes = options.max_audio_bytes};
}

openai::ModelCard Card(ServerState& server, const std::string& name) {
  const ServedModel& model = *server.model;
  // One request has no more sequences than a body, nor than the engine has room
  // for.
  const ModelDescription& description = model.generator.description();
  openai::Limits limits = server.options.requests;
  const int64_t most =
      std::min<int64_t>(description.limits.max_beams, limits.max_choices);
  limits.max_num_beams = std::min(limits.max_num_beams, most);
  limits.max_n = std::min(limits.max_n, most);
  limits.max_tokens = openai::MostNewTokens(description, limits);
  return {.id = name,
          .created = absl::ToUnixSeconds(model.created),
          .root = model.root,
          .max_model_len = description.max_context,
          .speech = SpeechOf(model, server.options.speech),
          .has_chat_template = model.generator.chat_prompts().ok(),
          .templates = model.generator.template_names(),
          .has_traces = server.options.traces != nullptr,
          .limits = limits};
}

// Responds with the result of `answer` for the body of `call`, on a worker
// thread if the body is long.
using AnswerText = absl::StatusOr<std::string> (*)(const ServedModel&,
                                                   std::string_view,
                                                   const openai::Limits&);
RouteWork RespondText(ServerState& server, RouteCall& call, AnswerText answer) {
  std::string body = call.exchange.TakeRequest().body;
  if (std::ssize(body) <= kMaxBytesOnIoThread) {
    co_await RespondOr(call,
                       answer(*server.model, body, server.options.requests));
    co_return;
  }
  WorkerThread::WorkFor<std::string> work =
      [answer, &model = *server.model.load(), &limits = server.options.requests,
       body = std::move(body)] { return answer(model, body, limits); };
  absl::StatusOr<std::string> answered =
      co_await server.tokenizing.Run<std::string>(std::move(work));
  co_await RespondOr(call, std::move(answered));
}

RouteWork Generate(ServerState& server, RouteCall& call, openai::Api api) {
  const GeneratingCall counted(&server);
  co_await AnswerCall(call.exchange, api, *server.model,
                      server.options.requests, server.resources(),
                      std::move(call.caller));
}

RouteWork Render(ServerState& server, RouteCall& call, openai::Api api) {
  co_await RenderCall(call.exchange, api, *server.model,
                      server.options.requests, server.resources(),
                      std::move(call.caller));
}

}  // namespace

RouteWork Health(ServerState&, RouteCall& call) {
  co_await RespondJson(call, "{\"status\": \"ok\"}");
}

RouteWork Ready(ServerState& server, RouteCall& call) {
  if (server.is_draining || server.model == nullptr) {
    co_await Refuse(
        call, openai::MakeHttpError(503, server.is_draining
                                             ? "the server shuts down"
                                             : "the model is being loaded"));
    co_return;
  }
  co_await RespondJson(call, "{\"status\": \"ready\"}");
}

RouteWork Version(ServerState&, RouteCall& call) {
  co_await RespondJson(call, "{\"version\": \"" ESPALIER_VERSION "\"}");
}

RouteWork Metrics(ServerState& server, RouteCall& call) {
  ServedModel* const model = server.model;
  EngineStats stats;
  if (model != nullptr) stats = co_await model->generator.engine().Stats();
  const std::vector<MetricLabel> labels = {
      {"model_name", model == nullptr ? "" : model->name}};
  http::Response response;
  response.headers = std::move(call.caller.headers);
  response.content_type = kPrometheusContentType;
  response.body = PrometheusText(stats, labels);
  const http::Server* const http = server.listening;
  if (http != nullptr) {
    response.body += ServerMetrics(http->stats(), server.compiling.stats(),
                                   server.speech.stats());
  }
  co_await call.exchange.Respond(std::move(response));
}

RouteWork ServerLoad(ServerState& server, RouteCall& call) {
  const int64_t num_rows = co_await NumRows(server);
  co_await RespondJson(call, Concat("{\"server_load\": ", num_rows, "}"));
}

RouteWork Load(ServerState& server, RouteCall& call) {
  const int64_t num_rows = co_await NumRows(server);
  co_await RespondJson(call, Concat("{\"load\": ", num_rows, "}"));
}

RouteWork Models(ServerState& server, RouteCall& call) {
  std::vector<openai::ModelCard> cards = {
      Card(server, server.model.load()->name)};
  for (const std::string& alias : server.model.load()->aliases) {
    cards.push_back(Card(server, alias));
  }
  co_await RespondJson(call, openai::WriteModels(cards));
}

RouteWork Model(ServerState& server, RouteCall& call) {
  if (IsNameOf(*server.model.load(), call.id)) {
    co_await RespondJson(call, openai::WriteModel(Card(server, call.id)));
    co_return;
  }
  const absl::Status error = openai::ModelNotFound(
      Concat("the model ", BytesInQuotes(call.id), " is not served here"));
  co_await Refuse(call, openai::ErrorOf(error));
}

RouteWork Page(ServerState&, RouteCall& call) {
  http::Response response;
  response.headers = std::move(call.caller.headers);
  response.headers.push_back(kNoSniff);
  response.headers.push_back(
      {"Content-Security-Policy", std::string(PageContentSecurityPolicy())});
  response.content_type = "text/html; charset=utf-8";
  response.body = PageHtml();
  co_await call.exchange.Respond(std::move(response));
}

RouteWork Trace(ServerState& server, RouteCall& call) {
  if (server.options.traces == nullptr) {
    co_await Refuse(
        call, openai::MakeHttpError(404,
                                    "no traces are kept: start the server with "
                                    "--trace-requests N"));
    co_return;
  }
  const http::Request& request = call.exchange.request();
  const absl::StatusOr<TraceFormat> format =
      ChooseTraceFormat(request.query, request.Find("accept"));
  if (!format.ok()) {
    co_await Refuse(call, openai::ErrorOf(format.status()));
    co_return;
  }
  WorkerThread::WorkFor<TraceAnswer> draw =
      [&traces = *server.options.traces,
       query = TraceQuery{TraceId(call.caller, call.id), call.id, *format},
       tokenizer = server.model.load()->generator.tokenizer()] {
        return AnswerTrace(traces, query, tokenizer.get());
      };
  absl::StatusOr<TraceAnswer> answer =
      co_await server.drawing.Run<TraceAnswer>(std::move(draw));
  if (!answer.ok()) {
    co_await Refuse(call, TraceError(answer.status()));
    co_return;
  }
  http::Response response;
  response.headers = std::move(call.caller.headers);
  response.headers.push_back(kNoSniff);
  if (!answer->content_security_policy.empty()) {
    response.headers.push_back({"Content-Security-Policy",
                                std::move(answer->content_security_policy)});
  }
  response.content_type = std::move(answer->content_type);
  response.body = std::move(answer->body);
  co_await call.exchange.Respond(std::move(response));
}

RouteWork Tokenize(ServerState& server, RouteCall& call) {
  return RespondText(server, call, &AnswerTokenize);
}

RouteWork Detokenize(ServerState& server, RouteCall& call) {
  return RespondText(server, call, &AnswerDetokenize);
}

RouteWork TokenizerInfo(ServerState& server, RouteCall& call) {
  const std::string& info = server.model.load()->tokenizer_info;
  if (info.empty()) {
    co_await Refuse(call,
                    openai::MakeHttpError(404, "the model has no tokenizer"));
    co_return;
  }
  co_await RespondJson(call, info);
}

RouteWork ResetPrefixCache(ServerState& server, RouteCall& call) {
  const int num_pages =
      co_await server.model.load()->generator.engine().ResetPrefixCache();
  co_await RespondJson(
      call, Concat("{\"success\": true, \"pages\": ", num_pages, "}"));
}

RouteWork UpdateWeights(ServerState& server, RouteCall& call) {
  const auto update =
      openai::ReadWeightUpdateCall(call.exchange.TakeRequest().body);
  if (!update.ok()) {
    co_await Refuse(call, openai::ErrorOf(update.status()));
    co_return;
  }
  const WorkerThread::WorkFor<std::string> work =
      [&server, update = *update]() -> absl::StatusOr<std::string> {
    WeightUpdate directory;
    directory.directory = update.directory;
    ASSIGN_OR_RETURN(
        const int64_t version,
        server.model.load()->generator.UpdateWeights(
            directory, {.running = update.running, .version = update.version},
            {.stop = server.is_stopping.get_token()}));
    return Concat("{\"success\": true, \"weight_version\": ", version, "}");
  };
  absl::StatusOr<std::string> answer =
      co_await server.updating.Run<std::string>(work);
  co_await RespondOr(call, std::move(answer));
}

RouteWork AbortRequests(ServerState& server, RouteCall& call) {
  std::string body = call.exchange.TakeRequest().body;
  const bool is_long = body.size() > kMaxCallBytesOnIoThread;
  absl::StatusOr<HeldMemory::Share> of_body =
      server.memory.Take(is_long ? kHeldPerBodyByte * std::ssize(body) : 0);
  if (!of_body.ok()) {
    co_await Refuse(call, openai::ErrorOf(of_body.status()));
    co_return;
  }
  WorkerThread::WorkFor<std::string> work =
      [&server, body = std::move(body),
       caller = call.caller]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(std::vector<std::string> ids,
                     openai::ReadAbortCall(body, server.options.requests));
    // A key ends calls of its own.
    for (std::string& id : ids) id = TraceId(caller, id);
    return Concat("{\"aborted\": ", server.running_calls.Abort(ids), "}");
  };
  absl::StatusOr<std::string> answer =
      co_await server.calls.RunIf<std::string>(is_long, std::move(work));
  co_await RespondOr(call, std::move(answer));
}

RouteWork RenderCompletions(ServerState& server, RouteCall& call) {
  return Render(server, call, openai::Api::kCompletions);
}

RouteWork RenderChatCompletions(ServerState& server, RouteCall& call) {
  return Render(server, call, openai::Api::kChat);
}

RouteWork Completions(ServerState& server, RouteCall& call) {
  return Generate(server, call, openai::Api::kCompletions);
}

RouteWork ChatCompletions(ServerState& server, RouteCall& call) {
  return Generate(server, call, openai::Api::kChat);
}

RouteWork Responses(ServerState& server, RouteCall& call) {
  return Generate(server, call, openai::Api::kResponses);
}

RouteWork GenerateTokens(ServerState& server, RouteCall& call) {
  return Generate(server, call, openai::Api::kTokens);
}

RouteWork Score(ServerState& server, RouteCall& call) {
  const GeneratingCall counted(&server);
  co_await AnswerScoreCall(call.exchange, *server.model,
                           server.options.requests, server.resources(),
                           std::move(call.caller));
}

}  // namespace espalier::serve::routes
