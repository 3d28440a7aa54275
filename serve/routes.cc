// The routes of a server, and the answers that are short.
#include <algorithm>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "batcher/prometheus_text.h"
#include "espalier/chat.h"
#include "openai/abort.h"
#include "openai/resolve_params.h"
#include "serve/page.h"
#include "serve/prompt_tokens.h"
#include "serve/ready_call.h"
#include "serve/server_core.h"
#include "serve/server_metrics.h"
#include "serve/text_calls.h"
#include "serve/trace_answer.h"

namespace espalier::serve {

namespace asio = boost::asio;

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

http::Response JsonResponse(std::vector<http::Header> headers,
                            std::string body) {
  http::Response response;
  response.headers = std::move(headers);
  response.body = std::move(body);
  return response;
}

}  // namespace

std::span<const ServerCore::Route> ServerCore::Routes() {
  using Core = ServerCore;
  static constexpr Route kRoutes[] = {
      {"GET", "/health", &Core::Health, Needs::kNothing},
      {"GET", "/ping", &Core::Health},
      {"GET", "/ready", &Core::Ready},
      {"GET", "/version", &Core::Version},
      {"GET", "/metrics", &Core::Metrics},
      {"GET", "/load", &Core::ServerLoad},
      {"GET", "/get_load", &Core::Load},
      {"GET", "/", &Core::Page},
      {"GET", "/v1/models", &Core::Models, Needs::kModel},
      {"GET", "/v1/models/{id}", &Core::Model, Needs::kModel},
      {"GET", "/v1/requests/{id}/trace", &Core::Trace, Needs::kModel},
      {"POST", "/tokenize", &Core::Tokenize, Needs::kModel},
      {"POST", "/detokenize", &Core::Detokenize, Needs::kModel},
      {"GET", "/tokenizer_info", &Core::TokenizerInfoOf, Needs::kModel},
      {"POST", "/reset_prefix_cache", &Core::ResetPrefixCache, Needs::kModel,
       Takes::kNothing, /*is_control=*/true},
      {"POST", "/abort_requests", &Core::AbortRequests, Needs::kModel},
      {"POST", "/v1/completions/render", &Core::RenderCompletions,
       Needs::kModel},
      {"POST", "/v1/chat/completions/render", &Core::RenderChatCompletions,
       Needs::kModel},
      {"POST", "/v1/completions", &Core::Completions, Needs::kGeneration},
      {"POST", "/v1/chat/completions", &Core::ChatCompletions,
       Needs::kGeneration},
      {"POST", "/v1/responses", &Core::Responses, Needs::kGeneration},
      {"POST", "/v1/files", &Core::AddFile, Needs::kClients, Takes::kForm},
      {"GET", "/v1/files", &Core::ListFiles},
      {"GET", "/v1/files/{id}/content", &Core::FileContent},
      {"GET", "/v1/files/{id}", &Core::File},
      {"DELETE", "/v1/files/{id}", &Core::RemoveFile},
      {"POST", "/v1/batches", &Core::CreateBatch},
      {"GET", "/v1/batches", &Core::ListBatches},
      {"POST", "/v1/batches/{id}/cancel", &Core::CancelBatch, Needs::kClients,
       Takes::kNothing},
      {"GET", "/v1/batches/{id}", &Core::Batch},
      {"POST", "/inference/v1/generate", &Core::GenerateTokens,
       Needs::kGeneration},
      {"POST", "/generative_scoring", &Core::Score, Needs::kGeneration},
  };
  return kRoutes;
}

ServerCore::Work ServerCore::RespondJson(Call& call, std::string body) {
  co_await call.exchange.Respond(
      JsonResponse(std::move(call.caller.headers), std::move(body)));
}

ServerCore::Work ServerCore::Refuse(Call& call, const openai::Error& error) {
  co_await call.exchange.Respond(
      ErrorResponse(error, std::move(call.caller.headers)));
}

ServerCore::Work ServerCore::RespondOr(Call& call,
                                       absl::StatusOr<std::string> body) {
  if (body.ok()) {
    co_await RespondJson(call, *std::move(body));
  } else {
    co_await Refuse(call, openai::ErrorOf(body.status()));
  }
}

ServerCore::Work ServerCore::Health(Call& call) {
  co_await RespondJson(call, "{\"status\": \"ok\"}");
}

ServerCore::Work ServerCore::Ready(Call& call) {
  if (is_draining_ || model_ == nullptr) {
    co_await Refuse(call, openai::MakeHttpError(
                              503, is_draining_ ? "the server shuts down"
                                                : "the model is being loaded"));
    co_return;
  }
  co_await RespondJson(call, "{\"status\": \"ready\"}");
}

ServerCore::Work ServerCore::Version(Call& call) {
  co_await RespondJson(call, "{\"version\": \"" ESPALIER_VERSION "\"}");
}

ServerCore::Work ServerCore::Metrics(Call& call) {
  ServedModel* const model = model_;
  EngineStats stats;
  if (model != nullptr) stats = co_await model->generator.engine().Stats();
  const std::vector<MetricLabel> labels = {
      {"model_name", model == nullptr ? "" : model->name}};
  http::Response response;
  response.headers = std::move(call.caller.headers);
  response.content_type = kPrometheusContentType;
  response.body = PrometheusText(stats, labels);
  const http::Server* const http = listening_;
  if (http != nullptr) {
    response.body += ServerMetrics(http->stats(), compiling_.stats());
  }
  co_await call.exchange.Respond(std::move(response));
}

boost::asio::awaitable<int64_t> ServerCore::NumRows() {
  ServedModel* const model = model_;
  if (model == nullptr) co_return 0;
  co_return RowsOf(*co_await model->latest.Read(absl::ZeroDuration()));
}

ServerCore::Work ServerCore::ServerLoad(Call& call) {
  const int64_t num_rows = co_await NumRows();
  co_await RespondJson(call, Concat("{\"server_load\": ", num_rows, "}"));
}

ServerCore::Work ServerCore::Load(Call& call) {
  const int64_t num_rows = co_await NumRows();
  co_await RespondJson(call, Concat("{\"load\": ", num_rows, "}"));
}

openai::ModelCard ServerCore::Card(const std::string& name) const {
  const ServedModel& model = *model_;
  // One request has no more sequences than a body, nor than the engine has room
  // for.
  const ModelDescription& description = model.generator.description();
  openai::Limits limits = options_.requests;
  const int64_t most =
      std::min<int64_t>(description.limits.max_beams, limits.max_choices);
  limits.max_num_beams = std::min(limits.max_num_beams, most);
  limits.max_n = std::min(limits.max_n, most);
  limits.max_tokens = openai::MostNewTokens(description, limits);
  return {.id = name,
          .created = absl::ToUnixSeconds(model.created),
          .root = model.root,
          .max_model_len = description.max_context,
          .has_chat_template = model.generator.chat_prompts().ok(),
          .templates = model.generator.template_names(),
          .has_traces = options_.traces != nullptr,
          .limits = limits};
}

ServerCore::Work ServerCore::Models(Call& call) {
  std::vector<openai::ModelCard> cards = {Card(model_.load()->name)};
  for (const std::string& alias : model_.load()->aliases) {
    cards.push_back(Card(alias));
  }
  co_await RespondJson(call, openai::WriteModels(cards));
}

ServerCore::Work ServerCore::Model(Call& call) {
  if (IsNameOf(*model_.load(), call.id)) {
    co_await RespondJson(call, openai::WriteModel(Card(call.id)));
    co_return;
  }
  const absl::Status error = openai::ModelNotFound(
      Concat("the model ", BytesInQuotes(call.id), " is not served here"));
  co_await Refuse(call, openai::ErrorOf(error));
}

ServerCore::Work ServerCore::Page(Call& call) {
  http::Response response;
  response.headers = std::move(call.caller.headers);
  response.headers.push_back(kNoSniff);
  response.headers.push_back(
      {"Content-Security-Policy", std::string(PageContentSecurityPolicy())});
  response.content_type = "text/html; charset=utf-8";
  response.body = PageHtml();
  co_await call.exchange.Respond(std::move(response));
}

ServerCore::Work ServerCore::Trace(Call& call) {
  if (options_.traces == nullptr) {
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
      [&traces = *options_.traces,
       query = TraceQuery{TraceId(call.caller, call.id), call.id, *format},
       tokenizer = model_.load()->generator.tokenizer()] {
        return AnswerTrace(traces, query, tokenizer.get());
      };
  absl::StatusOr<TraceAnswer> answer =
      co_await drawing_.Run<TraceAnswer>(std::move(draw));
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

ServerCore::Work ServerCore::RespondText(Call& call, AnswerText answer) {
  std::string body = call.exchange.TakeRequest().body;
  if (std::ssize(body) <= kMaxBytesOnIoThread) {
    co_await RespondOr(call, answer(*model_, body, options_.requests));
    co_return;
  }
  WorkerThread::WorkFor<std::string> work =
      [answer, &model = *model_.load(), &limits = options_.requests,
       body = std::move(body)] { return answer(model, body, limits); };
  absl::StatusOr<std::string> answered =
      co_await tokenizing_.Run<std::string>(std::move(work));
  co_await RespondOr(call, std::move(answered));
}

ServerCore::Work ServerCore::Tokenize(Call& call) {
  return RespondText(call, &AnswerTokenize);
}

ServerCore::Work ServerCore::Detokenize(Call& call) {
  return RespondText(call, &AnswerDetokenize);
}

ServerCore::Work ServerCore::TokenizerInfoOf(Call& call) {
  const std::string& info = model_.load()->tokenizer_info;
  if (info.empty()) {
    co_await Refuse(call,
                    openai::MakeHttpError(404, "the model has no tokenizer"));
    co_return;
  }
  co_await RespondJson(call, info);
}

ServerCore::Work ServerCore::ResetPrefixCache(Call& call) {
  const int num_pages =
      co_await model_.load()->generator.engine().ResetPrefixCache();
  co_await RespondJson(
      call, Concat("{\"success\": true, \"pages\": ", num_pages, "}"));
}

ServerCore::Work ServerCore::AbortRequests(Call& call) {
  std::string body = call.exchange.TakeRequest().body;
  const bool is_long = body.size() > kMaxCallBytesOnIoThread;
  absl::StatusOr<HeldMemory::Share> of_body =
      memory_.Take(is_long ? kHeldPerBodyByte * std::ssize(body) : 0);
  if (!of_body.ok()) {
    co_await Refuse(call, openai::ErrorOf(of_body.status()));
    co_return;
  }
  WorkerThread::WorkFor<std::string> work =
      [this, body = std::move(body),
       caller = call.caller]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(std::vector<std::string> ids,
                     openai::ReadAbortCall(body, options_.requests));
    // A key ends calls of its own.
    for (std::string& id : ids) id = TraceId(caller, id);
    return Concat("{\"aborted\": ", running_calls_.Abort(ids), "}");
  };
  absl::StatusOr<std::string> answer =
      co_await calls_.RunIf<std::string>(is_long, std::move(work));
  co_await RespondOr(call, std::move(answer));
}

ServerCore::Work ServerCore::RenderCompletions(Call& call) {
  return Render(call, openai::Api::kCompletions);
}

ServerCore::Work ServerCore::RenderChatCompletions(Call& call) {
  return Render(call, openai::Api::kChat);
}

ServerCore::Work ServerCore::Completions(Call& call) {
  return Generate(call, openai::Api::kCompletions);
}

ServerCore::Work ServerCore::ChatCompletions(Call& call) {
  return Generate(call, openai::Api::kChat);
}

ServerCore::Work ServerCore::Responses(Call& call) {
  return Generate(call, openai::Api::kResponses);
}

ServerCore::Work ServerCore::GenerateTokens(Call& call) {
  return Generate(call, openai::Api::kTokens);
}

}  // namespace espalier::serve
