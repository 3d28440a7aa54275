#include "serve/server_core.h"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cpu_count.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "espalier/split_text.h"
#include "http/multipart.h"
#include "openai/error.h"
#include "openai/resolve_params.h"
#include "request/generation_params.h"
#include "serve/body_headers.h"
#include "serve/generation_calls.h"
#include "serve/job_answers.h"
#include "serve/origins.h"
#include "serve/speech_form.h"
#include "serve/tokenizer_info.h"

namespace espalier::serve {
namespace {

constexpr char kShutDown[] = "the server shuts down";
constexpr int kMostThreads = 4;  // by default
// Threads that compile constraints. More would take cores from the model.
constexpr int kCompilingThreads = 2;
constexpr size_t kLongestId = 128;
// Answers report statistics that are at most so old.
constexpr absl::Duration kReportAge = absl::Milliseconds(50);

// The client's id of the request, if it can be echoed.
std::string RequestIdOf(const http::Request& request) {
  const std::string_view given = request.Find("x-request-id");
  const bool is_good =
      !given.empty() && given.size() <= kLongestId &&
      std::ranges::all_of(given, [](char c) { return c > ' ' && c <= '~'; });
  return is_good ? std::string(given) : NewRequestId();
}

http::Response HttpErrorResponse(int status, std::string_view message) {
  return ErrorResponse(openai::MakeHttpError(status, message));
}

// Compiles the constraint among the defaults, for each call that leaves it
// open.
// Errors: kInvalidArgument naming it, as the defaults did; or max_new_tokens,
// which they may leave open.
absl::Status CheckConstraint(const openai::ServerDefaults& defaults,
                             Generator* generator) {
  if (!defaults.level().params.constraint) return absl::OkStatus();
  GenerationParams params =
      openai::ResolveParams(openai::Call(), defaults, generator->defaults(),
                            generator->description(), /*num_prompt_tokens=*/1)
          .params;
  params.constraint = defaults.level().params.constraint;
  const absl::Status status = generator->engine()
                                  .Prepare({.prompt_tokens = {0},
                                            .params = std::move(params),
                                            .num_continued = 0})
                                  .status();
  openai::Call call = defaults.call();
  constexpr std::string_view kRoom = "max_new_tokens";
  if (!call.Gives(kRoom)) call.given.push_back({kRoom, kRoom});
  return openai::InWordsOf(call, status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Listen(
    const ServerOptions& options) {
  RETURN_IF_ERROR(CheckServerOptions(options));
  openai::ServerDefaults defaults;
  if (!options.defaults.empty()) {
    ASSIGN_OR_RETURN(defaults, openai::ServerDefaults::Read(options.defaults,
                                                            options.requests));
  }
  auto core = std::make_unique<ServerCore>(options, std::move(defaults));
  if (options.traces != nullptr) RETURN_IF_ERROR(core->state_.drawing.Start());
  RETURN_IF_ERROR(core->state_.tokenizing.Start());
  RETURN_IF_ERROR(core->state_.building.Start());
  RETURN_IF_ERROR(core->state_.updating.Start());
  if (!options.jobs.folder.empty()) {
    JobOptions jobs = options.jobs;
    jobs.batches.limits.max_line_bytes = options.http.max_body_bytes;
    absl::StatusOr<std::unique_ptr<JobCalls>> opened = JobCalls::Open(jobs);
    if (!opened.ok()) return AnnotateOption(opened.status(), "files");
    core->state_.jobs = *std::move(opened);
  }
  const int num_threads = options.num_threads > 0
                              ? options.num_threads
                              : std::min(NumUsableCpus(), kMostThreads);
  RETURN_IF_ERROR(core->state_.calls.Start(num_threads));
  RETURN_IF_ERROR(
      core->state_.transcribing.Start(options.speech.max_transcriptions));
  RETURN_IF_ERROR(core->state_.compiling.Start(kCompilingThreads));
  http::ServerOptions http;
  http.host = options.host;
  http.port = options.port;
  // The name was looked up to allow this, and may have another address now.
  http.loopback_only = options.api_keys.empty() && !options.insecure;
  http.num_threads = num_threads;
  http.limits = options.http;
  http.limits.names = {.max_header_bytes = "--max-header-bytes",
                       .max_headers = "--max-headers",
                       .max_body_bytes = "--max-body-bytes",
                       .max_connections = "--max-connections",
                       .header_timeout = "--header-timeout",
                       .body_timeout = "--body-timeout"};
  http.error_response = HttpErrorResponse;
  http.head_check = [core = core.get()](const http::Request& head) {
    return core->CheckHead(head);
  };
  http.streamed_body_limit = [core = core.get()](const http::Request& head) {
    return core->StreamedBodyLimit(head);
  };
  http.others_wait = [core = core.get()] {
    ServedModel* const model = core->state_.model;
    return model != nullptr &&
           model->generator.engine().num_foreground_waiting() > 0;
  };
  if (options.request_log_fd >= 0) {
    RETURN_IF_ERROR(core->request_log_.Start(options.request_log_fd));
    http.answer_log = [core = core.get()](const http::AnswerRecord& record) {
      core->request_log_.Add(record);
    };
  }
  ASSIGN_OR_RETURN(
      core->http_,
      http::Server::Listen(http, [core = core.get()](http::Exchange& exchange) {
        return core->Handle(exchange);
      }));
  core->state_.listening = core->http_.get();
  return core;
}

ServerCore::~ServerCore() { Stop(); }

absl::Status ServerCore::Serve(Generator generator, const std::string& model) {
  RETURN_IF_ERROR(state_.defaults.Check(generator.description()));
  RETURN_IF_ERROR(CheckConstraint(state_.defaults, &generator));
  RETURN_IF_ERROR(CheckSplitsTexts(
      {.given = state_.defaults.call().split_sentences,
       .translates_sentences = generator.translates_sentences(),
       .has_encoder = generator.description().encoder.has_value()}));
  std::filesystem::path directory(model);
  if (!directory.has_filename()) directory = directory.parent_path();
  const std::string name = state_.options.model_name.empty()
                               ? directory.filename().string()
                               : state_.options.model_name;
  // They stand in JSON.
  if (!IsUtf8(name)) {
    if (!state_.options.model_name.empty()) {
      return InvalidField(OptionName{"model_name"}, " is not UTF-8");
    }
    return InvalidField(OptionName{"the name of the model's directory"},
                        " is not UTF-8: give ", OptionName{"model_name"});
  }
  std::set<std::string_view> names = {name};
  for (const std::string& alias : state_.options.model_aliases) {
    if (alias.empty() || !IsUtf8(alias) || !names.insert(alias).second) {
      return InvalidField(OptionName{"model_aliases"},
                          " must be UTF-8, not empty and all different",
                          Got(BytesInQuotes(alias)));
    }
  }
  const std::lock_guard<std::mutex> lock(serve_mutex_);
  if (served_ != nullptr) {
    return FailedPrecondition("the server has a model: ", served_->name);
  }
  if (is_stopped_) return FailedPrecondition("the server has stopped");
  std::string tokenizer_info = TokenizerInfo(generator, model);
  served_ = std::make_unique<ServedModel>(
      std::move(generator), name, state_.options.model_aliases,
      IsUtf8(model) ? model : name, state_.defaults,
      state_.options.tool_call_format, std::move(tokenizer_info), model);
  state_.model = served_.get();
  if (state_.jobs == nullptr) return absl::OkStatus();
  return state_.jobs->Start([this](jobs::RunningCall call) {
    return RunStored(state_, std::move(call));
  });
}

int ServerCore::Drain(absl::Duration timeout) {
  state_.is_draining = true;
  // The next server does what they do not finish.
  if (state_.jobs != nullptr) state_.jobs->StopBatches();
  http_->Drain();
  http_->WaitUntilIdle(timeout);
  const int num_left = state_.num_generating;
  Stop();
  return num_left;
}

void ServerCore::Stop() {
  if (http_ == nullptr) return;  // it could not listen
  state_.is_draining = true;
  // Time for open connections to get their answer before they are closed.
  constexpr absl::Duration kTimeToTell = absl::Seconds(2);
  {
    const std::lock_guard<std::mutex> lock(serve_mutex_);
    is_stopped_ = true;
  }
  if (state_.jobs != nullptr) state_.jobs->Stop();
  if (served_ != nullptr) served_->generator.Shutdown(kShutDown);
  state_.compiling.Stop();  // what it compiled could not run any more
  state_.is_stopping.request_stop();
  http_->WaitUntilIdle(kTimeToTell);
  // Calls that wait for these threads get an answer, too.
  state_.drawing.Stop();
  state_.tokenizing.Stop();
  state_.building.Stop();
  state_.updating.Stop();
  state_.calls.Stop();
  state_.transcribing.Stop();
  http_->Stop();
}

ServerCore::Passed ServerCore::Check(const http::Request& request) {
  Passed passed;
  passed.caller.request_id = RequestIdOf(request);
  passed.caller.headers.push_back({"x-request-id", passed.caller.request_id});
  state_.options.allowed_origins.AddHeaders(request, &passed.caller.headers);
  std::string allowed;
  passed.route = FindRoute(request, &passed.id, &allowed);
  passed.refusal = Refusal(request, passed.route, allowed, &passed.caller);
  return passed;
}

std::optional<http::HeadRefusal> ServerCore::CheckHead(
    const http::Request& head) {
  const Passed passed = Check(head);
  if (!passed.refusal.has_value()) return std::nullopt;
  return http::HeadRefusal{
      ErrorResponse(*passed.refusal, passed.caller.headers),
      LogNote(passed.caller)};
}

std::optional<http::NamedLimit> ServerCore::StreamedBodyLimit(
    const http::Request& head) const {
  // A form has more than its file: boundaries, headers, other fields.
  constexpr int64_t kFormBytes = 64 << 10;
  constexpr http::NamedLimit kUnlimited = {std::numeric_limits<int64_t>::max()};
  std::string id;
  std::string allowed;
  const Route* const route = FindRoute(head, &id, &allowed);
  if (route == nullptr) return std::nullopt;
  switch (route->takes) {
    case Route::Takes::kLines:
      return kUnlimited;  // HeldMemory bounds it
    case Route::Takes::kFileForm:
      // The head is refused, and says why.
      if (state_.jobs == nullptr) return kUnlimited;
      return http::NamedLimit{
          state_.options.jobs.files.max_file_bytes + kFormBytes,
          "--max-file-mib"};
    case Route::Takes::kAudioForm:
      return http::NamedLimit{state_.options.speech.max_audio_bytes +
                                  kMaxSpeechFieldBytes + kFormBytes,
                              "--max-audio-mib"};
    case Route::Takes::kJson:
    case Route::Takes::kNothing:
      break;
  }
  return std::nullopt;
}

RouteWork ServerCore::Handle(http::Exchange& exchange) {
  Passed passed = Check(exchange.request());
  exchange.set_note(LogNote(passed.caller));
  if (state_.options.allowed_origins.IsPreflight(exchange.request())) {
    co_await exchange.Respond(AllowedOrigins::AnswerPreflight(
        exchange.request(), std::move(passed.caller.headers)));
    co_return;
  }
  // Reports the load only to clients with a valid key.
  const bool is_known =
      state_.options.api_keys.empty() || passed.caller.key >= 0;
  const bool is_refused =
      passed.refusal.has_value() && passed.refusal->http_status != 503;
  if (is_known && !is_refused) {
    co_await ReportLoad(exchange.request(), &passed.caller);
  }
  if (state_.options.api_keys.empty()) {
    passed.caller.address = TenantAddress(exchange.ClientAddress(),
                                          state_.options.tenant_prefix_bits);
  }
  if (passed.refusal.has_value()) {
    co_await exchange.Respond(
        ErrorResponse(*passed.refusal, std::move(passed.caller.headers)));
    co_return;
  }
  RouteCall call = {exchange, std::move(passed.caller), std::move(passed.id)};
  co_await passed.route->answer(state_, call);
}

std::optional<openai::Error> ServerCore::Refusal(const http::Request& request,
                                                 const Route* route,
                                                 const std::string& allowed,
                                                 Caller* caller) {
  const bool is_health =
      route != nullptr && route->needs == Route::Needs::kNothing;
  if (!state_.options.api_keys.empty() && !is_health) {
    const std::optional<int> key =
        state_.options.api_keys.Find(request.Find("authorization"));
    if (!key.has_value()) {
      // Browsers prompt for a password; only do so if a person reads the
      // answer.
      const bool is_page = request.path == "/";
      caller->headers.push_back(
          {"WWW-Authenticate",
           is_page ? "Basic realm=\"espalier, password: API key\"" : "Bearer"});
      return openai::MakeHttpError(
          401,
          "no API key, or a wrong one: send the header "
          "\"Authorization: Bearer KEY\"");
    }
    caller->key = *key;
  }
  const bool is_private =
      state_.options.api_keys.empty() && !state_.options.insecure;
  if (is_private && !is_health && !IsOwnHost(request.Find("host"))) {
    return openai::MakeHttpError(
        403, Concat("without an API key this server is for its own machine, "
                    "and not to be asked for as ",
                    BytesInQuotes(request.Find("host"))));
  }
  if (route == nullptr && allowed.empty()) {
    return openai::MakeHttpError(
        404, Concat("there is nothing at ", BytesInQuotes(request.path),
                    RouteHint(request.path)));
  }
  if (route == nullptr) {
    caller->headers.push_back({"Allow", allowed});
    return openai::MakeHttpError(
        405, Concat(BytesInQuotes(request.path), " takes ", allowed, ", not ",
                    BytesInQuotes(request.method)));
  }
  const std::string_view origin = request.Find("origin");
  if (state_.options.api_keys.empty() && !origin.empty() &&
      !state_.options.allowed_origins.Allow(origin) &&
      !IsOwnOrigin(origin, request.Find("host"),
                   IsLoopback(state_.options.host))) {
    return openai::MakeHttpError(
        403,
        Concat("a page of ", BytesInQuotes(origin),
               " may not use this server, which has no API key, unless it is "
               "allowed to (--allowed-origin)"));
  }
  if (route->is_control && !state_.options.allow_control) {
    return openai::MakeHttpError(
        403, Concat(route->path, " changes the server for all its clients: it ",
                    "must be started with --allow-control"));
  }
  if (route->is_job() && state_.jobs == nullptr) {
    return openai::MakeHttpError(
        404,
        "no files and batches are kept: start the server with --files DIR");
  }
  if (route->takes_form()) {
    const auto form = http::BoundaryOf(request.Find("content-type"));
    if (!form.ok()) return openai::MakeHttpError(415, Message(form.status()));
  } else if (route->method == "POST" && route->takes == Route::Takes::kJson) {
    if (auto error = CheckJsonHeaders(request)) return error;
  }
  const bool has_body = (route->method == "POST" || route->method == "PUT") &&
                        route->takes != Route::Takes::kNothing;
  if (has_body) {
    auto error = CheckContentEncoding(request, &caller->headers);
    if (error.has_value()) return error;
  }
  if (route->needs >= Route::Needs::kModel && state_.model == nullptr) {
    return openai::MakeHttpError(503, "the model is being loaded");
  }
  if (route->needs == Route::Needs::kGeneration && state_.is_draining) {
    return openai::MakeHttpError(
        503, "the server shuts down and takes no more requests");
  }
  return std::nullopt;
}

RouteWork ServerCore::ReportLoad(const http::Request& request, Caller* caller) {
  std::optional<LoadFormat> format =
      ReadLoadFormat(request.Find("endpoint-load-metrics-format"));
  if (!format.has_value() && state_.options.always_reports_load) {
    format = LoadFormat::kJson;
  }
  ServedModel* const model = state_.model;
  if (!format.has_value() || model == nullptr) co_return;
  const std::shared_ptr<const EngineStats> stats =
      co_await model->latest.Read(kReportAge);
  caller->headers.push_back(
      {"endpoint-load-metrics",
       LoadMetrics(*stats, model->meter.Read(SteadyNow()),
                   model->generator.description().limits.max_beams, *format)});
}

}  // namespace espalier::serve
