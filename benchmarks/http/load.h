// Load: many connections to one server, driven by one thread over epoll. It is
// small and fast, so that on two cores the server is the bottleneck.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/http/load_options.h"
#include "benchmarks/http/load_report.h"
#include "benchmarks/http/response_scanner.h"

namespace espalier::http_load {

class Load {
 public:
  explicit Load(const LoadOptions& options);
  ~Load();

  // For LoadOptions::seconds.
  LoadReport Run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection {
    int fd = -1;
    bool is_connected = false;
    bool is_busy = false;  // a request is on its way
    std::string_view request;
    size_t sent = 0;          // bytes of the request
    Clock::time_point begin;  // when it was sent
    Clock::time_point last_event;
    bool has_first_byte = false;
    int64_t seen_events = 0;
    int64_t drop_after = -1;  // bytes sent and received; -1: never
    int64_t bytes = 0;
    Clock::time_point next_step;  // slow modes
    ResponseScanner scanner;
  };

  bool IsSlow() const;
  void Open(Connection* connection);
  void Reopen(Connection* connection);
  void Close(Connection* connection, bool by_reset = false);
  void Fail(Connection* connection, const char* kind);
  // A request that was due at `begin`.
  void Start(Connection* connection, Clock::time_point begin);
  void StartNext(Connection* connection);
  void StartDue();
  void Step(Connection* connection);  // slow modes
  bool Send(Connection* connection, size_t most);
  void Receive(Connection* connection, size_t most);
  void OnBytes(Connection* connection, size_t count);
  void OnResponse(Connection* connection);
  void OnEnd(Connection* connection);
  // Replaces the connection if it has sent enough bytes. True if it did.
  bool MayDrop(Connection* connection, int64_t more_bytes);
  void OnReady(Connection* connection, uint32_t events);
  int WaitMilliseconds() const;

  const LoadOptions options_;
  const std::vector<std::string> requests_;
  sockaddr_in address_ = {};
  const int epoll_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Connection>> connections_;
  int64_t num_open_ = 0;
  int64_t num_started_ = 0;  // requests
  std::vector<char> buffer_;
  LoadReport report_;

  // kOpen.
  std::vector<Connection*> free_;
  std::deque<Clock::time_point> waiting_;  // due, without a connection
  Clock::time_point next_due_;
};

}  // namespace espalier::http_load
