#include "serve/server_core.h"

#include <sys/random.h>

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/cpu_count.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/spelling.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "espalier/split_text.h"
#include "http/multipart.h"
#include "openai/error.h"
#include "openai/resolve_params.h"
#include "request/generation_params.h"
#include "serve/body_headers.h"
#include "serve/origins.h"
#include "serve/score_calls.h"
#include "serve/tokenizer_info.h"

namespace espalier::serve {
namespace {

constexpr char kShutDown[] = "the server shuts down";
constexpr int kMostThreads = 4;  // by default
constexpr size_t kLongestId = 128;
constexpr std::string_view kV1 = "/v1";
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

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Decodes %XX in a segment of a path.
std::string Decoded(std::string_view segment) {
  std::string text;
  for (size_t i = 0; i < segment.size(); ++i) {
    const bool is_escape = segment[i] == '%' && i + 2 < segment.size() &&
                           HexDigit(segment[i + 1]) >= 0 &&
                           HexDigit(segment[i + 2]) >= 0;
    if (!is_escape) {
      text += segment[i];
      continue;
    }
    text += static_cast<char>(HexDigit(segment[i + 1]) * 16 +
                              HexDigit(segment[i + 2]));
    i += 2;
  }
  return text;
}

// True if `path` matches `pattern`; `*id` is the part that matches {id}, if the
// pattern has one.
bool Matches(std::string_view pattern, std::string_view path, std::string* id) {
  constexpr std::string_view kId = "{id}";
  const size_t at = pattern.find(kId);
  if (at == pattern.npos) return pattern == path;
  const std::string_view end = pattern.substr(at + kId.size());
  if (!path.starts_with(pattern.substr(0, at)) || !path.ends_with(end) ||
      path.size() <= at + end.size()) {
    return false;
  }
  *id = path.substr(at, path.size() - at - end.size());
  // A trailing {id} may contain slashes, as names of models do: "org/model".
  if (!end.empty() && id->find('/') != id->npos) return false;
  *id = Decoded(*id);
  return true;
}

// One while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>* count) : count_(count) { ++*count_; }
  ~Counted() { --*count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>* const count_;
};

http::Response HttpErrorResponse(int status, std::string_view message) {
  return ErrorResponse(openai::MakeHttpError(status, message));
}

// Compiles the constraint among the defaults, for each call that leaves it
// open.
// Errors: kInvalidArgument naming it, as the defaults did.
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
  return openai::InWordsOf(defaults.call(), status);
}

}  // namespace

std::string NewRequestId() {
  uint32_t words[3] = {};
  if (getrandom(words, sizeof(words), 0) != sizeof(words)) {
    for (uint32_t& word : words) word = std::random_device()();
  }
  return absl::StrCat(absl::Hex(words[0], absl::kZeroPad8),
                      absl::Hex(words[1], absl::kZeroPad8),
                      absl::Hex(words[2], absl::kZeroPad8));
}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Listen(
    const ServerOptions& options) {
  RETURN_IF_ERROR(CheckServerOptions(options));
  openai::ServerDefaults defaults;
  if (!options.defaults.empty()) {
    ASSIGN_OR_RETURN(defaults, openai::ServerDefaults::Read(options.defaults,
                                                            options.requests));
  }
  auto core = std::make_unique<ServerCore>(options, std::move(defaults));
  if (options.traces != nullptr) RETURN_IF_ERROR(core->drawing_.Start());
  RETURN_IF_ERROR(core->tokenizing_.Start());
  if (!options.jobs.folder.empty()) {
    JobOptions jobs = options.jobs;
    jobs.batches.limits.max_line_bytes = options.http.max_body_bytes;
    absl::StatusOr<std::unique_ptr<JobCalls>> opened = JobCalls::Open(jobs);
    if (!opened.ok()) return AnnotateOption(opened.status(), "files");
    core->jobs_ = *std::move(opened);
  }
  const int num_threads = options.num_threads > 0
                              ? options.num_threads
                              : std::min(NumUsableCpus(), kMostThreads);
  RETURN_IF_ERROR(core->calls_.Start(num_threads));
  RETURN_IF_ERROR(core->compiling_.Start(kCompilingThreads));
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
                       .max_streamed_bytes = "--max-file-mib",
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
    ServedModel* const model = core->model_;
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
  core->listening_ = core->http_.get();
  return core;
}

ServerCore::~ServerCore() { Stop(); }

absl::Status ServerCore::Serve(Generator generator, const std::string& model) {
  RETURN_IF_ERROR(defaults_.Check(generator.description()));
  RETURN_IF_ERROR(CheckConstraint(defaults_, &generator));
  RETURN_IF_ERROR(CheckSplitsTexts(
      {.given = defaults_.call().split_sentences,
       .translates_sentences = generator.translates_sentences(),
       .has_encoder = generator.description().encoder.has_value()}));
  std::filesystem::path directory(model);
  if (!directory.has_filename()) directory = directory.parent_path();
  const std::string name = options_.model_name.empty()
                               ? directory.filename().string()
                               : options_.model_name;
  // They stand in JSON.
  if (!IsUtf8(name)) {
    if (!options_.model_name.empty()) {
      return InvalidField(OptionName{"model_name"}, " is not UTF-8");
    }
    return InvalidField(OptionName{"the name of the model's directory"},
                        " is not UTF-8: give ", OptionName{"model_name"});
  }
  std::set<std::string_view> names = {name};
  for (const std::string& alias : options_.model_aliases) {
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
      std::move(generator), name, options_.model_aliases,
      IsUtf8(model) ? model : name, defaults_, options_.tool_call_format,
      std::move(tokenizer_info));
  model_ = served_.get();
  if (jobs_ == nullptr) return absl::OkStatus();
  return jobs_->Start(
      [this](jobs::RunningCall call) { return RunStored(std::move(call)); });
}

int ServerCore::Drain(absl::Duration timeout) {
  is_draining_ = true;
  // The next server does what they do not finish.
  if (jobs_ != nullptr) jobs_->StopBatches();
  http_->Drain();
  http_->WaitUntilIdle(timeout);
  const int num_left = num_generating_;
  Stop();
  return num_left;
}

void ServerCore::Stop() {
  if (http_ == nullptr) return;  // it could not listen
  is_draining_ = true;
  // Time for open connections to get their answer before they are closed.
  constexpr absl::Duration kTimeToTell = absl::Seconds(2);
  {
    const std::lock_guard<std::mutex> lock(serve_mutex_);
    is_stopped_ = true;
  }
  if (jobs_ != nullptr) jobs_->Stop();
  if (served_ != nullptr) served_->generator.Shutdown(kShutDown);
  compiling_.Stop();  // what it compiled could not run any more
  http_->WaitUntilIdle(kTimeToTell);
  // Calls that wait for these threads get an answer, too.
  drawing_.Stop();
  tokenizing_.Stop();
  calls_.Stop();
  http_->Stop();
}

ServerCore::Passed ServerCore::Check(const http::Request& request) {
  Passed passed;
  passed.caller.request_id = RequestIdOf(request);
  passed.caller.headers.push_back({"x-request-id", passed.caller.request_id});
  options_.allowed_origins.AddHeaders(request, &passed.caller.headers);
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

std::optional<int64_t> ServerCore::StreamedBodyLimit(
    const http::Request& head) const {
  // A form has more than its file: boundaries, headers, another field.
  constexpr int64_t kFormBytes = 64 << 10;
  std::string id;
  std::string allowed;
  const Route* const route = FindRoute(head, &id, &allowed);
  if (route == nullptr || route->takes != Takes::kForm) return std::nullopt;
  // The head is refused, and says why.
  if (jobs_ == nullptr) return std::numeric_limits<int64_t>::max();
  return options_.jobs.files.max_file_bytes + kFormBytes;
}

ServerCore::Work ServerCore::Handle(http::Exchange& exchange) {
  Passed passed = Check(exchange.request());
  exchange.set_note(LogNote(passed.caller));
  if (options_.allowed_origins.IsPreflight(exchange.request())) {
    co_await exchange.Respond(AllowedOrigins::AnswerPreflight(
        exchange.request(), std::move(passed.caller.headers)));
    co_return;
  }
  // Reports the load only to clients with a valid key.
  const bool is_known = options_.api_keys.empty() || passed.caller.key >= 0;
  const bool is_refused =
      passed.refusal.has_value() && passed.refusal->http_status != 503;
  if (is_known && !is_refused) {
    co_await ReportLoad(exchange.request(), &passed.caller);
  }
  if (options_.api_keys.empty()) {
    passed.caller.address =
        TenantAddress(exchange.ClientAddress(), options_.tenant_prefix_bits);
  }
  if (passed.refusal.has_value()) {
    co_await exchange.Respond(
        ErrorResponse(*passed.refusal, std::move(passed.caller.headers)));
    co_return;
  }
  Call call = {exchange, std::move(passed.caller), std::move(passed.id)};
  co_await (this->*passed.route->answer)(call);
}

std::string ServerCore::RouteHint(std::string_view path) {
  constexpr size_t kLongest = 64;  // comparing takes time
  if (path.size() > kLongest) return "";
  // Other engines' routes for what is here, by how they end.
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"/chat/completions", "/v1/chat/completions"},
      {"/completions", "/v1/completions"},
      {"/models", "/v1/models"},
      {"/api/generate", "/v1/completions"},
      {"/api/chat", "/v1/chat/completions"},
      {"/api/tags", "/v1/models"},
      {"/generate_stream", "/v1/completions with stream true"},
      {"/v1/messages", "/v1/chat/completions"},
      {"/completion", "/v1/completions"},
      {"/flush_cache", "/reset_prefix_cache"},
      {"/abort_request", "/abort_requests"},
      {"/healthz", "/health"},
      {"/livez", "/health"},
      {"/readyz", "/ready"},
      {"/server_info", "/v1/models"},
      {"/get_model_info", "/v1/models"}};
  std::vector<std::string_view> paths;
  for (const Route& route : Routes()) paths.push_back(route.path);
  std::string hint = DidYouMean(path, paths);
  if (!hint.empty()) return hint;
  for (const auto& [end, meant] : kOthers) {
    if (path.ends_with(end)) return Concat("; did you mean ", meant, "?");
  }
  return "";
}

const ServerCore::Route* ServerCore::FindRoute(const http::Request& request,
                                               std::string* id,
                                               std::string* allowed) {
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : Routes()) {
    const bool is_it =
        Matches(route.path, request.path, id) ||
        // A base URL may lack it.
        (route.path.starts_with(kV1) &&
         Matches(route.path.substr(kV1.size()), request.path, id));
    if (!is_it) continue;
    if (route.method == method) return &route;
    absl::StrAppend(allowed, allowed->empty() ? "" : ", ",
                    ToAbsl(route.method));
    if (route.method == "GET") *allowed += ", HEAD";
  }
  return nullptr;
}

std::optional<openai::Error> ServerCore::Refusal(const http::Request& request,
                                                 const Route* route,
                                                 const std::string& allowed,
                                                 Caller* caller) {
  const bool is_health = route != nullptr && route->needs == Needs::kNothing;
  if (!options_.api_keys.empty() && !is_health) {
    const std::optional<int> key =
        options_.api_keys.Find(request.Find("authorization"));
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
  const bool is_private = options_.api_keys.empty() && !options_.insecure;
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
  if (options_.api_keys.empty() && !origin.empty() &&
      !options_.allowed_origins.Allow(origin) &&
      !IsOwnOrigin(origin, request.Find("host"), IsLoopback(options_.host))) {
    return openai::MakeHttpError(
        403,
        Concat("a page of ", BytesInQuotes(origin),
               " may not use this server, which has no API key, unless it is "
               "allowed to (--allowed-origin)"));
  }
  if (route->is_control && !options_.allow_control) {
    return openai::MakeHttpError(
        403, Concat(route->path, " changes the server for all its clients: it ",
                    "must be started with --allow-control"));
  }
  if (route->is_job() && jobs_ == nullptr) {
    return openai::MakeHttpError(
        404,
        "no files and batches are kept: start the server with --files DIR");
  }
  if (route->takes == Takes::kForm) {
    const auto form = http::BoundaryOf(request.Find("content-type"));
    if (!form.ok()) return openai::MakeHttpError(415, Message(form.status()));
  } else if (route->method == "POST" && route->takes == Takes::kJson) {
    if (auto error = CheckBodyHeaders(request, &caller->headers)) return error;
  }
  if (route->needs >= Needs::kModel && model_ == nullptr) {
    return openai::MakeHttpError(503, "the model is being loaded");
  }
  if (route->needs == Needs::kGeneration && is_draining_) {
    return openai::MakeHttpError(
        503, "the server shuts down and takes no more requests");
  }
  return std::nullopt;
}

ServerCore::Work ServerCore::ReportLoad(const http::Request& request,
                                        Caller* caller) {
  std::optional<LoadFormat> format =
      ReadLoadFormat(request.Find("endpoint-load-metrics-format"));
  if (!format.has_value() && options_.always_reports_load) {
    format = LoadFormat::kJson;
  }
  ServedModel* const model = model_;
  if (!format.has_value() || model == nullptr) co_return;
  const std::shared_ptr<const EngineStats> stats =
      co_await model->latest.Read(kReportAge);
  caller->headers.push_back(
      {"endpoint-load-metrics",
       LoadMetrics(*stats, model->meter.Read(SteadyNow()),
                   model->generator.description().limits.max_beams, *format)});
}

ServerCore::Work ServerCore::Generate(Call& call, openai::Api api) {
  const Counted counted(&num_generating_);
  co_await AnswerCall(call.exchange, api, *model_, options_.requests,
                      {&calls_, &memory_, &running_calls_, &compiling_},
                      std::move(call.caller));
}

ServerCore::Work ServerCore::Render(Call& call, openai::Api api) {
  co_await RenderCall(call.exchange, api, *model_, options_.requests,
                      {&calls_, &memory_, &running_calls_, &compiling_},
                      std::move(call.caller));
}

ServerCore::Work ServerCore::Score(Call& call) {
  const Counted counted(&num_generating_);
  co_await AnswerScoreCall(call.exchange, *model_, options_.requests,
                           {&calls_, &memory_, &running_calls_, &compiling_},
                           std::move(call.caller));
}

}  // namespace espalier::serve
