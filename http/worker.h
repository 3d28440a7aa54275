// Worker: the state that the connections of one thread share: an io_context,
// one timer for all their time-outs, scratch buffers, counters.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "http/connection.h"
#include "http/counters.h"
#include "http/exchange.h"
#include "http/server.h"
#include "http/socket.h"

namespace espalier::http {

// State that all threads of a server share.
struct ServerShared {
  Limits limits;
  ErrorResponse error_response;
  HeadCheck head_check;
  StreamedBodyLimit streamed_body_limit;
  AnswerLog answer_log;
  OthersWait others_wait;
  Handler handler;
  std::atomic<bool> draining{false};
  std::atomic<int> num_connections{0};
  std::atomic<int> num_refused{0};    // part of num_connections: being refused
  std::atomic<int> num_lingering{0};  // without num_refused
  std::atomic<int64_t> unread_bytes{0};  // request bodies being received
};

// Thread safety: Run's thread alone, but for counters(), context() and Finish.
class Worker {
 public:
  explicit Worker(ServerShared* shared);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  boost::asio::io_context& context() { return context_; }
  const Counters& counters() const { return counters_; }

  // Runs connections until Finish, and then until they have ended.
  void Run();
  // From any thread: closes all connections, cancels their handlers, and takes
  // no more.
  void Finish();
  // From any thread: Run returns, whatever is left.
  void Abandon() { context_.stop(); }
  bool has_ended() const { return has_ended_.load(); }

  // A socket of context().
  void Add(Socket socket);

  // For connections.
  Counters& counts() { return counters_; }
  ServerShared& shared() { return *shared_; }
  const Limits& limits() const { return shared_->limits; }
  std::array<char, 64 << 10>& read_buffer() { return read_buffer_; }
  std::string& head_buffer() { return head_buffer_; }
  // The value of the header Date.
  std::string_view date();
  void Remove(Connection* connection);

 private:
  // Throws, and does nothing, if memory is lacking.
  void StartTimer();
  // Time-outs of all connections.
  void Check();

  ServerShared* const shared_;  // outlives it
  const std::chrono::nanoseconds check_period_;
  Counters counters_;
  std::atomic<bool> has_ended_{false};
  bool is_finishing_ = false;
  bool timer_runs_ = false;
  boost::intrusive::list<Connection> connections_;
  std::array<char, 64 << 10> read_buffer_;
  std::string head_buffer_;
  std::time_t date_time_ = 0;
  std::array<char, 64> date_ = {};

  // Last: what waits in it, handlers and connections, uses all above.
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
      work_{context_.get_executor()};
  boost::asio::steady_timer timer_{context_};
};

}  // namespace espalier::http
