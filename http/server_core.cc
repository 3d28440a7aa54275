#include "http/server_core.h"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "base/field_error.h"
#include "base/status.h"
#include "http/resolve.h"
#include "http/socket.h"

namespace espalier::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Pause after a connection could not be accepted, for lack of files or memory.
constexpr auto kAcceptPause = std::chrono::milliseconds(50);

// Then the accepting thread's connections have their turn.
constexpr int kMaxAcceptsInARow = 16;

// For handlers to end after Stop.
constexpr absl::Duration kStopGrace = absl::Seconds(1);

std::string ToText(const asio::ip::tcp::endpoint& endpoint) {
  std::ostringstream text;
  text << endpoint;
  return std::move(text).str();
}

// True if the machine lacks this kind of address.
bool IsMissing(const error_code& error) {
  return error == asio::error::address_family_not_supported ||
         error == boost::system::errc::address_not_available;
}

}  // namespace

ServerCore::ServerCore(const ServerOptions& options, Handler handler)
    : shared_{.limits = options.limits,
              .error_response = options.error_response,
              .head_check = options.head_check,
              .streamed_body_limit = options.streamed_body_limit,
              .answer_log = options.answer_log,
              .others_wait = options.others_wait,
              .handler = std::move(handler)} {
  for (int i = 0; i < options.num_threads; ++i) {
    workers_.push_back(std::make_unique<Worker>(&shared_));
  }
}

absl::Status ServerCore::Listen(const std::string& host, int port,
                                bool loopback_only) {
  ASSIGN_OR_RETURN(auto endpoints, Resolve(host, port));
  for (const Endpoint& endpoint : endpoints) {
    if (!loopback_only || endpoint.address().is_loopback()) continue;
    return InvalidField(OptionName{"host"}, " ", host, " has the address ",
                        endpoint.address().to_string(),
                        ", which is not of this machine alone");
  }
  // Another address may lack the port that is free on the first one.
  constexpr int kAttempts = 16;
  absl::Status status;
  for (int i = 0; i < kAttempts; ++i) {
    status = ListenOnAll(endpoints);
    if (status.ok() || port != 0) break;
  }
  return status;
}

absl::Status ServerCore::ListenOnAll(std::vector<Endpoint> endpoints) {
  listeners_.clear();
  addresses_.clear();
  error_code missing;
  for (Endpoint& endpoint : endpoints) {
    if (endpoint.port() == 0 && !listeners_.empty()) {
      endpoint.port(static_cast<uint16_t>(port_));
    }
    const error_code error = ListenOn(endpoint, endpoints.size() == 1);
    if (IsMissing(error) && endpoints.size() > 1) {
      missing = error;
    } else if (error) {
      const bool is_taken = error == boost::asio::error::address_in_use;
      return MakeError(absl::StatusCode::kUnavailable, "cannot listen on ",
                       ToText(endpoint), ": ", error.message(),
                       is_taken ? "; port 0 takes one that is free" : "");
    }
  }
  if (!listeners_.empty()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnavailable, "cannot listen on ",
                   ToText(endpoints.front()), ": ", missing.message());
}

error_code ServerCore::ListenOn(const Endpoint& endpoint, bool is_only) {
  auto listener = std::make_unique<Listener>(accepting_context());
  Acceptor& acceptor = listener->acceptor;
  error_code error;
  if (acceptor.open(endpoint.protocol(), error)) return error;
  if (acceptor.set_option(Acceptor::reuse_address(true), error)) return error;
  if (endpoint.protocol() == asio::ip::tcp::v6() && !is_only) {
    // IPv4 has a socket of its own.
    if (acceptor.set_option(asio::ip::v6_only(true), error)) return error;
  }
  if (acceptor.bind(endpoint, error)) return error;
  if (acceptor.listen(Acceptor::max_listen_connections, error)) return error;
  // To accept never blocks, not even for a connection that has gone.
  if (acceptor.non_blocking(true, error)) return error;
  acceptor.set_option(Acceptor::enable_connection_aborted(true), error);
  if (error) return error;
  const Endpoint bound = acceptor.local_endpoint(error);
  if (error) return error;
  port_ = bound.port();
  addresses_.push_back(ToText(bound));
  listeners_.push_back(std::move(listener));
  return {};
}

void ServerCore::Run() {
  for (const auto& listener : listeners_) WaitForConnections(listener.get());
  for (const auto& worker : workers_) {
    threads_.emplace_back([&worker = *worker] {
      pthread_setname_np(pthread_self(), "http");
      worker.Run();
    });
  }
}

void ServerCore::WaitForConnections(Listener* listener) {
  listener->acceptor.async_wait(
      Acceptor::wait_read,
      asio::bind_allocator(HandlerAllocator<char>(listener->memory),
                           [this, listener](const error_code&) {
                             AcceptConnections(listener);
                           }));
}

void ServerCore::AcceptConnections(Listener* listener) {
  if (!listener->acceptor.is_open()) return;
  error_code error;
  for (int i = 0; i < kMaxAcceptsInARow && !error; ++i) {
    error = AcceptOne(&listener->acceptor);
  }
  if (!error || IsTransient(error) ||
      error == asio::error::connection_aborted) {
    WaitForConnections(listener);
  } else {
    PauseAccepting(listener);
  }
}

error_code ServerCore::AcceptOne(Acceptor* acceptor) {
  Worker& worker = *workers_[next_worker_ % workers_.size()];
  error_code error;
  try {
    Socket socket(worker.context());
    if (acceptor->accept(socket, error)) return error;
    ++next_worker_;
    if (&worker == workers_.front().get()) {
      worker.Add(std::move(socket));
    } else {
      asio::post(worker.context(),
                 [&worker, socket = std::move(socket)]() mutable {
                   worker.Add(std::move(socket));
                 });
    }
  } catch (const std::exception&) {
    // No memory: the accepted socket is closed.
    return make_error_code(boost::system::errc::not_enough_memory);
  }
  return error;
}

void ServerCore::PauseAccepting(Listener* listener) {
  try {
    listener->pause.expires_after(kAcceptPause);
    listener->pause.async_wait(
        [this, listener](const error_code&) { AcceptConnections(listener); });
  } catch (const std::exception&) {
    WaitForConnections(listener);  // there is no memory for a pause either
  }
}

void ServerCore::Stop() {
  const std::lock_guard<std::mutex> lock(stop_mutex_);
  if (threads_.empty()) return;
  asio::post(accepting_context(), [this] {
    error_code ignored;
    for (const auto& listener : listeners_) {
      listener->acceptor.close(ignored);
      listener->pause.cancel();
    }
  });
  for (const auto& worker : workers_) worker->Finish();
  if (!WaitForWorkers(kStopGrace)) {
    for (const auto& worker : workers_) worker->Abandon();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool ServerCore::WaitForWorkers(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  const auto has_ended = [](const auto& worker) { return worker->has_ended(); };
  while (!std::all_of(workers_.begin(), workers_.end(), has_ended)) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

ServerStats ServerCore::stats() const {
  ServerStats stats;
  for (const auto& worker : workers_) worker->counters().AddTo(&stats);
  return stats;
}

}  // namespace espalier::http
