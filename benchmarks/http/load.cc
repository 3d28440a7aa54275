#include "benchmarks/http/load.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/check.h"
#include "base/status.h"

namespace espalier::http_load {

namespace {

std::string MakeRequest(const LoadOptions& options, std::string_view body) {
  std::string text =
      Concat(body.empty() ? "GET " : "POST ", options.path,
             " HTTP/1.1\r\nHost: ", options.host, "\r\n", options.headers);
  if (body.empty()) return text + "\r\n";
  return Concat(text, "Content-Type: application/json\r\nContent-Length: ",
                body.size(), "\r\n\r\n", body);
}

std::vector<std::string> MakeRequests(const LoadOptions& options) {
  std::vector<std::string> requests;
  for (const std::string& body : options.bodies) {
    requests.push_back(MakeRequest(options, body));
  }
  if (requests.empty()) requests.push_back(MakeRequest(options, options.body));
  return requests;
}

std::chrono::nanoseconds Milliseconds(double count) {
  return std::chrono::nanoseconds(static_cast<int64_t>(count * 1e6));
}

template <typename Duration>
float ToMilliseconds(Duration duration) {
  return std::chrono::duration<float, std::milli>(duration).count();
}

constexpr size_t kSlowRead = 16;
constexpr size_t kAll = ~size_t{0};

}  // namespace

Load::Load(const LoadOptions& options)
    : options_(options),
      requests_(MakeRequests(options)),
      epoll_(epoll_create1(0)),
      random_(options.seed),
      buffer_(256 << 10) {
  address_.sin_family = AF_INET;
  address_.sin_port = htons(static_cast<uint16_t>(options.port));
  CHECK_EQ(inet_pton(AF_INET, options.host.c_str(), &address_.sin_addr), 1);
}

Load::~Load() {
  for (const auto& connection : connections_) {
    if (connection->fd >= 0) close(connection->fd);
  }
  close(epoll_);
}

bool Load::IsSlow() const {
  return options_.mode == Mode::kSlowHeaders ||
         options_.mode == Mode::kSlowBodies ||
         options_.mode == Mode::kSlowReaders;
}

LoadReport Load::Run() {
  const auto begin = Clock::now();
  const auto end = begin + Milliseconds(options_.seconds * 1e3);
  next_due_ = begin;
  for (int i = 0; i < options_.connections; ++i) {
    connections_.push_back(std::make_unique<Connection>());
    Open(connections_.back().get());
  }
  std::array<epoll_event, 512> events;
  const int64_t most = options_.requests;
  while (Clock::now() < end && (most == 0 || report_.responses < most)) {
    const int count =
        epoll_wait(epoll_, events.data(), events.size(), WaitMilliseconds());
    for (int i = 0; i < count; ++i) {
      OnReady(static_cast<Connection*>(events[i].data.ptr), events[i].events);
    }
    if (options_.mode == Mode::kOpen) StartDue();
    if (!IsSlow()) continue;
    for (const auto& connection : connections_) {
      if (connection->is_connected && Clock::now() >= connection->next_step) {
        Step(connection.get());
      }
    }
  }
  report_.seconds = ToMilliseconds(Clock::now() - begin) / 1e3;
  return std::move(report_);
}

int Load::WaitMilliseconds() const {
  if (options_.mode == Mode::kOpen) {
    return next_due_ - Clock::now() > std::chrono::milliseconds(1) ? 1 : 0;
  }
  return IsSlow() ? 2 : 50;
}

void Load::Open(Connection* connection) {
  *connection = Connection();
  connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (connection->fd < 0) return Fail(connection, "socket");
  const int on = 1;
  setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (options_.mode == Mode::kSlowReaders) {
    const int small = 4096;
    setsockopt(connection->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  }
  ++report_.opened;
  ++num_open_;
  const int result = connect(
      connection->fd, reinterpret_cast<sockaddr*>(&address_), sizeof address_);
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = connection;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, connection->fd, &event);
  if (result < 0 && errno != EINPROGRESS) Fail(connection, "connect");
}

void Load::Close(Connection* connection, bool by_reset) {
  if (connection->fd < 0) return;
  if (by_reset) {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  close(connection->fd);
  connection->fd = -1;
  connection->is_connected = false;
  --num_open_;
}

void Load::Reopen(Connection* connection) {
  Close(connection);
  Open(connection);
}

void Load::Fail(Connection* connection, const char* kind) {
  ++report_.errors[kind];
  Close(connection);
  // If not even a socket can be made, it does not retry.
  if (options_.mode != Mode::kIdle && std::string_view(kind) != "socket") {
    Open(connection);
  }
}

void Load::OnReady(Connection* connection, uint32_t events) {
  if (connection->fd < 0) return;
  if (!connection->is_connected && (events & EPOLLOUT) != 0) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Fail(connection, "connect");
    connection->is_connected = true;
    report_.most_open = std::max(report_.most_open, num_open_);
    connection->next_step = Clock::now();
    StartNext(connection);
  } else if (connection->is_busy && !IsSlow() && (events & EPOLLOUT) != 0) {
    if (!Send(connection, kAll)) return;
  }
  const bool reads = options_.mode != Mode::kSlowReaders;
  if (reads && (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0) {
    Receive(connection, kAll);
  } else if (!reads && (events & (EPOLLHUP | EPOLLERR)) != 0) {
    Fail(connection, "closed");
  }
}

void Load::StartNext(Connection* connection) {
  if (options_.mode == Mode::kIdle) return;
  if (options_.mode != Mode::kOpen) return Start(connection, Clock::now());
  if (waiting_.empty()) return free_.push_back(connection);
  const auto due = waiting_.front();
  waiting_.pop_front();
  Start(connection, due);
}

void Load::StartDue() {
  const auto now = Clock::now();
  std::exponential_distribution<double> gap(options_.rate / 1e3);
  for (; next_due_ <= now; next_due_ += Milliseconds(gap(random_))) {
    waiting_.push_back(next_due_);
  }
  while (!waiting_.empty() && !free_.empty()) {
    Connection* const connection = free_.back();
    free_.pop_back();
    if (!connection->is_connected) continue;  // it comes back by itself
    const auto due = waiting_.front();
    waiting_.pop_front();
    Start(connection, due);
  }
}

void Load::Start(Connection* connection, Clock::time_point begin) {
  if (options_.requests > 0 && num_started_ == options_.requests) return;
  connection->scanner.Reset();
  connection->is_busy = true;
  connection->request =
      requests_[static_cast<size_t>(num_started_++) % requests_.size()];
  connection->sent = 0;
  connection->begin = begin;
  connection->has_first_byte = false;
  connection->seen_events = 0;
  if (options_.mode == Mode::kDroppers) {
    // Half of them drop within the request, half within the response.
    std::uniform_int_distribution<int64_t> within(
        0, std::ssize(connection->request) * 2);
    connection->drop_after = within(random_);
    connection->bytes = 0;
  }
  size_t at_once = kAll;
  if (options_.mode == Mode::kSlowHeaders) at_once = 1;
  if (options_.mode == Mode::kSlowBodies) {
    at_once = connection->request.find("\r\n\r\n") + 4;
  }
  Send(connection, at_once);
}

void Load::Step(Connection* connection) {
  connection->next_step = Clock::now() + Milliseconds(options_.interval_ms);
  if (options_.mode == Mode::kSlowReaders) {
    Receive(connection, kSlowRead);
  } else if (connection->is_busy) {
    Send(connection, 1);
  }
}

bool Load::Send(Connection* connection, size_t most) {
  std::string_view rest = connection->request.substr(connection->sent, most);
  if (connection->drop_after >= 0) {
    rest = rest.substr(
        0, static_cast<size_t>(connection->drop_after - connection->bytes));
  }
  if (!rest.empty()) {
    const ssize_t sent =
        send(connection->fd, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return true;
    if (sent < 0) {
      Fail(connection, "send");
      return false;
    }
    connection->sent += static_cast<size_t>(sent);
    return !MayDrop(connection, sent);
  }
  return !MayDrop(connection, 0);
}

bool Load::MayDrop(Connection* connection, int64_t more_bytes) {
  if (connection->drop_after < 0) return false;
  connection->bytes += more_bytes;
  if (connection->bytes < connection->drop_after) return false;
  ++report_.drops;
  Close(connection, /*by_reset=*/random_() % 2 == 0);
  Open(connection);
  return true;
}

void Load::Receive(Connection* connection, size_t most) {
  while (connection->fd >= 0) {
    const size_t size = std::min(most, buffer_.size());
    const ssize_t count = recv(connection->fd, buffer_.data(), size, 0);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return OnEnd(connection);
    const int fd = connection->fd;
    OnBytes(connection, static_cast<size_t>(count));
    // The connection was replaced, or all bytes are read; epoll reports later
    // ones.
    if (connection->fd != fd || static_cast<size_t>(count) < size) return;
    if (most != kAll) return;
  }
}

void Load::OnEnd(Connection* connection) {
  connection->scanner.End();
  if (connection->is_busy &&
      connection->scanner.state() == ResponseScanner::State::kDone) {
    return OnResponse(connection);
  }
  Fail(connection, connection->is_busy ? "closed" : "closed_idle");
}

void Load::OnBytes(Connection* connection, size_t count) {
  report_.bytes_received += static_cast<int64_t>(count);
  const auto now = Clock::now();
  if (!connection->has_first_byte) {
    connection->has_first_byte = true;
    connection->last_event = now;
    report_.first_bytes.push_back(ToMilliseconds(now - connection->begin));
  }
  ResponseScanner& scanner = connection->scanner;
  scanner.Scan(std::string_view(buffer_.data(), count));
  const int64_t events = scanner.events() - connection->seen_events;
  connection->seen_events += events;
  report_.events += events;
  if (events > 0 && options_.mode == Mode::kStreams) {
    report_.event_gaps.push_back(ToMilliseconds(now - connection->last_event));
    connection->last_event = now;
  }
  if (MayDrop(connection, static_cast<int64_t>(count))) return;
  if (scanner.state() == ResponseScanner::State::kDone) {
    OnResponse(connection);
  } else if (scanner.state() == ResponseScanner::State::kMalformed) {
    Fail(connection, "malformed");
  }
}

void Load::OnResponse(Connection* connection) {
  const ResponseScanner& scanner = connection->scanner;
  ++report_.responses;
  ++report_.statuses[std::to_string(scanner.status())];
  const float latency = ToMilliseconds(Clock::now() - connection->begin);
  report_.latencies.push_back(latency);
  report_.latencies_by_status[std::to_string(scanner.status())].push_back(
      latency);
  connection->is_busy = false;
  if (scanner.closes() || options_.new_connections) return Reopen(connection);
  StartNext(connection);
}

}  // namespace espalier::http_load
