// ServerCore: the routes of a server (server.h), and the checks of every call
// before it reaches one: key, origin, method, type of the body.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "http/server.h"
#include "openai/listing.h"
#include "openai/server_defaults.h"
#include "serve/compile_queue.h"
#include "serve/generation_calls.h"
#include "serve/job_calls.h"
#include "serve/request_log.h"
#include "serve/served_model.h"
#include "serve/server_options.h"
#include "serve/worker_thread.h"

namespace espalier::serve {

// Returns 96 unpredictable bits in hexadecimal.
std::string NewRequestId();

class ServerCore {
 public:
  static absl::StatusOr<std::unique_ptr<ServerCore>> Listen(
      const ServerOptions& options);
  // Use Listen.
  ServerCore(const ServerOptions& options, openai::ServerDefaults defaults)
      : options_(options),
        defaults_(std::move(defaults)),
        memory_(options.max_held_bytes) {}
  ~ServerCore();

  absl::Status Serve(Generator generator, const std::string& model);
  int Drain(absl::Duration timeout);
  void Stop();
  const http::Server& http() const { return *http_; }

 private:
  using Work = boost::asio::awaitable<void>;

  // A call that may be answered.
  struct Call {
    http::Exchange& exchange;
    Caller caller;
    std::string id;  // {id} in the path, if the route has one
  };

  // Condition for a route to answer.
  enum class Needs {
    kNothing,     // always, without a key too
    kClients,     // always
    kModel,       // once there is a model
    kGeneration,  // from then on until the server drains
  };
  // The body of a POST.
  enum class Takes { kJson, kForm, kNothing };
  struct Route {
    std::string_view method;
    std::string_view path;  // {id} stands for any segment
    Work (ServerCore::*answer)(Call& call);
    Needs needs = Needs::kClients;
    Takes takes = Takes::kJson;
    bool is_control = false;  // with ServerOptions::allow_control alone

    // True for the routes of files and batches.
    bool is_job() const {
      return path.starts_with("/v1/files") || path.starts_with("/v1/batches");
    }
  };
  static std::span<const Route> Routes();

  // The outcome of the checks of a request's head.
  struct Passed {
    const Route* route = nullptr;
    std::string id;
    Caller caller;
    std::optional<openai::Error> refusal;  // unset: it may go on to its route
  };
  Passed Check(const http::Request& request);
  // Refuses a call by its head, before its body is read.
  std::optional<http::HeadRefusal> CheckHead(const http::Request& head);
  // The bodies of forms are streamed, up to the largest file.
  std::optional<int64_t> StreamedBodyLimit(const http::Request& head) const;
  Work Handle(http::Exchange& exchange);
  // Returns null if there is no such route; then `*allowed` lists the methods
  // of this path.
  static const Route* FindRoute(const http::Request& request, std::string* id,
                                std::string* allowed);
  // Returns "; did you mean ...?" if a route has a similar path; else "".
  static std::string RouteHint(std::string_view path);
  // Returns the error of a call that is refused; nullopt if it may continue.
  std::optional<openai::Error> Refusal(const http::Request& request,
                                       const Route* route,
                                       const std::string& allowed,
                                       Caller* caller);
  // Adds the header endpoint-load-metrics if it is requested.
  Work ReportLoad(const http::Request& request, Caller* caller);

  Work Health(Call& call);
  Work Ready(Call& call);
  Work Version(Call& call);
  Work Metrics(Call& call);
  Work ServerLoad(Call& call);
  Work Load(Call& call);
  Work Models(Call& call);
  Work Model(Call& call);
  Work Page(Call& call);
  Work Trace(Call& call);
  Work Tokenize(Call& call);
  Work Detokenize(Call& call);
  Work TokenizerInfoOf(Call& call);
  Work ResetPrefixCache(Call& call);
  Work AbortRequests(Call& call);
  Work RenderCompletions(Call& call);
  Work RenderChatCompletions(Call& call);
  Work Completions(Call& call);
  Work ChatCompletions(Call& call);
  Work Responses(Call& call);
  Work GenerateTokens(Call& call);
  Work Score(Call& call);

  Work AddFile(Call& call);
  Work ListFiles(Call& call);
  Work File(Call& call);
  Work FileContent(Call& call);
  Work RemoveFile(Call& call);
  Work CreateBatch(Call& call);
  Work ListBatches(Call& call);
  Work Batch(Call& call);
  Work CancelBatch(Call& call);

  Work Generate(Call& call, openai::Api api);
  Work Render(Call& call, openai::Api api);
  // REQUIRES: jobs_ is not null, for this and the calls of its routes.
  Work RespondJob(Call& call, JobCalls::Answer answer);
  JobCall JobCallOf(Call& call) const;
  // Returns the tenant whose share of the stored files and batches a call uses:
  // its key's owner, or without keys its address.
  std::string TenantOf(const Caller& caller) const;
  // Makes a call of a batch, by the path of all calls.
  boost::asio::awaitable<openai::BatchOutcome> RunStored(
      jobs::RunningCall call);

  // Responds to `call` with the result of `answer` for its body, on a worker
  // thread if the body is long.
  using AnswerText = absl::StatusOr<std::string> (*)(const ServedModel&,
                                                     std::string_view,
                                                     const openai::Limits&);
  Work RespondText(Call& call, AnswerText answer);
  Work RespondJson(Call& call, std::string body);
  Work Refuse(Call& call, const openai::Error& error);
  Work RespondOr(Call& call, absl::StatusOr<std::string> body);
  openai::ModelCard Card(const std::string& name) const;
  // Rows that run or wait.
  boost::asio::awaitable<int64_t> NumRows();

  const ServerOptions options_;
  const openai::ServerDefaults defaults_;
  HeldMemory memory_;  // held by calls
  std::mutex serve_mutex_;
  bool is_stopped_ ABSL_GUARDED_BY(serve_mutex_) = false;
  // Outlives http_'s threads. Set once, under serve_mutex_, unless stopped.
  std::unique_ptr<ServedModel> served_;
  std::atomic<ServedModel*> model_ = nullptr;  // once it is ready
  std::atomic<bool> is_draining_ = false;
  std::atomic<int> num_generating_ = 0;  // calls that are being answered
  RunningCalls running_calls_;           // outlives http_
  RequestLog request_log_;  // outlives http_, whose threads write to it
  std::unique_ptr<http::Server> http_;
  // Server for its own threads, which may run before http_ is set.
  std::atomic<http::Server*> listening_ = nullptr;
  // End before http_, whose exchanges wait for them.
  WorkerThread drawing_{"draw traces"};  // runs where traces are kept
  WorkerThread tokenizing_{"tokenize long texts"};
  // Long calls and answers; as many may wait as requests of the engine do.
  WorkerThread calls_{"read a long call, or write a long answer",
                      /*max_waiting=*/1024};
  // Constraints, which may take two seconds each. More threads would take cores
  // from the model.
  static constexpr int kCompilingThreads = 2;
  CompileQueue compiling_{{.compile =
                               [this](ConstraintLanguage* language) {
                                 model_.load()->generator.engine().Compile(
                                     language);
                               },
                           .is_compiled = Engine::HasCompiled}};
  std::unique_ptr<JobCalls> jobs_;  // null: there are none
};

}  // namespace espalier::serve
