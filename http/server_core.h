// ServerCore: the threads of a server, and what accepts connections for them.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "http/handler_memory.h"
#include "http/server.h"
#include "http/worker.h"

namespace espalier::http {

class ServerCore {
 public:
  ServerCore(const ServerOptions& options, Handler handler);
  // REQUIRES: Stop was called, or Listen was not or has failed.
  ~ServerCore() = default;

  // Errors: as Server::Listen.
  absl::Status Listen(const std::string& host, int port, bool loopback_only);
  void Run();
  void Stop();

  int port() const { return port_; }
  const std::vector<std::string>& addresses() const { return addresses_; }
  ServerShared& shared() { return shared_; }
  ServerStats stats() const;

 private:
  using Acceptor = boost::asio::ip::tcp::acceptor;
  using Endpoint = boost::asio::ip::tcp::endpoint;

  // One address. Used by the accepting thread alone after Run.
  struct Listener {
    explicit Listener(boost::asio::io_context& context)
        : acceptor(context), pause(context) {}

    Acceptor acceptor;
    boost::asio::steady_timer pause;
    const std::shared_ptr<HandlerMemory> memory =
        std::make_shared<HandlerMemory>();
  };

  boost::asio::io_context& accepting_context() {
    return workers_.front()->context();
  }
  absl::Status ListenOnAll(std::vector<Endpoint> endpoints);
  boost::system::error_code ListenOn(const Endpoint& endpoint, bool is_only);
  // Accepts connections until Stop; lack of memory does not end it. Uses
  // callbacks, since asio destroys a coroutine that lacks the memory to wait.
  void WaitForConnections(Listener* listener);
  void AcceptConnections(Listener* listener);
  boost::system::error_code AcceptOne(Acceptor* acceptor);
  void PauseAccepting(Listener* listener);
  bool WaitForWorkers(absl::Duration timeout) const;

  // Constant after Listen, but for shared_'s atomics.
  ServerShared shared_;
  int port_ = 0;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Worker>> workers_;  // the first one accepts
  std::vector<std::unique_ptr<Listener>> listeners_;

  // Next worker to get a connection; used by the accepting thread.
  size_t next_worker_ = 0;
  std::mutex stop_mutex_;
  // Filled by Run; from then on under stop_mutex_.
  std::vector<std::thread> threads_;
};

}  // namespace espalier::http
