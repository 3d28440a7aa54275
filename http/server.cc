#include "http/server.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/field_error.h"
#include "base/status.h"
#include "http/server_core.h"

namespace espalier::http {

namespace {

absl::Status CheckOptions(const ServerOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.host.empty())
    return InvalidField(OptionName{"host"}, " must not be empty");
  if (options.port < 0 || options.port > 65535) {
    return InvalidField(OptionName{"port"}, " must be between 0 and 65535",
                        Got(options.port));
  }
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    return InvalidField(OptionName{"num_threads"}, " must be between 1 and ",
                        kMaxThreads, Got(options.num_threads));
  }
  return options.limits.Check();
}

// The message as a JSON string holds it: ours have no control characters.
std::string Escape(std::string_view message) {
  std::string escaped;
  for (const char c : message) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

Response PlainErrorResponse(int status, std::string_view message) {
  return {.status = status,
          .body = Concat("{\"error\": \"", Escape(message), "\"}\n")};
}

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(
    const ServerOptions& options, Handler handler) {
  RETURN_IF_ERROR(CheckOptions(options));
  try {
    auto core = std::make_unique<ServerCore>(options, std::move(handler));
    RETURN_IF_ERROR(
        core->Listen(options.host, options.port, options.loopback_only));
    // From here on the destructor stops what runs.
    std::unique_ptr<Server> server(new Server(std::move(core)));
    server->core_->Run();
    return server;
  } catch (const std::exception& error) {  // no files, threads or memory
    return MakeError(absl::StatusCode::kUnavailable,
                     "cannot start the server: ", error.what());
  }
}

Server::Server(std::unique_ptr<ServerCore> core) : core_(std::move(core)) {}

Server::~Server() { Stop(); }

int Server::port() const { return core_->port(); }

std::vector<std::string> Server::addresses() const {
  return core_->addresses();
}

void Server::Drain() { core_->shared().draining = true; }

bool Server::WaitUntilIdle(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (stats().running_exchanges > 0) {
    if (absl::Now() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

void Server::Stop() { core_->Stop(); }

ServerStats Server::stats() const { return core_->stats(); }

}  // namespace espalier::http
