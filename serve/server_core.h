// ServerCore: the life of a server (server.h), and the checks of every call
// before it reaches its route (routes.h): key, origin, method, type of the
// body.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "http/server.h"
#include "openai/server_defaults.h"
#include "serve/request_log.h"
#include "serve/routes.h"
#include "serve/served_model.h"
#include "serve/server_options.h"
#include "serve/server_state.h"

namespace espalier::serve {

class ServerCore {
 public:
  static absl::StatusOr<std::unique_ptr<ServerCore>> Listen(
      const ServerOptions& options);
  // Use Listen.
  ServerCore(const ServerOptions& options, openai::ServerDefaults defaults)
      : state_(options, std::move(defaults)) {}
  ~ServerCore();

  absl::Status Serve(Generator generator, const std::string& model);
  int Drain(absl::Duration timeout);
  void Stop();
  const http::Server& http() const { return *http_; }

 private:
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
  std::optional<http::NamedLimit> StreamedBodyLimit(
      const http::Request& head) const;
  RouteWork Handle(http::Exchange& exchange);
  // Returns the error of a call that is refused; nullopt if it may continue.
  std::optional<openai::Error> Refusal(const http::Request& request,
                                       const Route* route,
                                       const std::string& allowed,
                                       Caller* caller);
  // Adds the header endpoint-load-metrics if it is requested.
  RouteWork ReportLoad(const http::Request& request, Caller* caller);

  std::mutex serve_mutex_;
  bool is_stopped_ ABSL_GUARDED_BY(serve_mutex_) = false;
  // Outlive the threads of state_ and http_. served_ is set once, under
  // serve_mutex_, unless stopped.
  std::unique_ptr<ServedModel> served_;
  RequestLog request_log_;
  // Stop() ends its threads before those of http_, whose exchanges wait for
  // them, and both before the destructor.
  ServerState state_;
  std::unique_ptr<http::Server> http_;
};

}  // namespace espalier::serve
