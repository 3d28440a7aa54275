#include "http/worker.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <utility>

#include "absl/time/time.h"
#include "http/socket.h"

namespace espalier::http {

namespace asio = boost::asio;

namespace {

std::chrono::nanoseconds CheckPeriod(const Limits& limits) {
  const absl::Duration shortest =
      std::min({limits.header_timeout, limits.body_timeout, limits.idle_timeout,
                limits.write_timeout, limits.crowded_write_timeout,
                limits.linger_timeout, limits.max_linger});
  return absl::ToChronoNanoseconds(
      std::clamp(shortest / 8, absl::Milliseconds(1), absl::Milliseconds(100)));
}

// "Sun, 06 Nov 1994 08:49:37 GMT", in no other language than English. Takes no
// memory: each answer has one.
void FormatDate(std::time_t time, std::span<char> text) {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed",
                                   "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc = {};
  gmtime_r(&time, &utc);
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

void Counters::AddTo(ServerStats* stats) const {
  stats->open_connections += open_connections.value();
  stats->running_exchanges += running_exchanges.value();
  stats->accepted_connections += accepted_connections.value();
  stats->refused_connections += refused_connections.value();
  for (int i = 0; i < 6; ++i) stats->responses[i] += responses[i].value();
  stats->clients_gone += clients_gone.value();
  stats->slow_readers += slow_readers.value();
  stats->timeouts += timeouts.value();
  stats->bytes_received += bytes_received.value();
  stats->bytes_sent += bytes_sent.value();
}

Worker::Worker(ServerShared* shared)
    : shared_(shared), check_period_(CheckPeriod(shared->limits)) {}

Worker::~Worker() = default;

void Worker::Run() {
  while (!context_.stopped()) {
    try {
      if (timer_runs_ || connections_.empty()) {
        context_.run();
      } else {
        // There was no memory for the timer.
        context_.run_for(check_period_);
        Check();
      }
    } catch (const std::exception&) {
      // An allocation failed where no connection could catch it. The work that
      // threw is over; the other work continues.
    }
  }
  has_ended_ = true;
}

void Worker::Finish() {
  asio::post(context_, [this] {
    is_finishing_ = true;
    work_.reset();
    timer_.cancel();
    // Each stays in the list until what holds it has ended.
    for (Connection& connection : connections_) connection.Abort();
  });
}

void Worker::Add(Socket socket) {
  if (is_finishing_) return;
  // Counts it before it is compared, so that no two take the last place.
  const auto connection = std::make_shared<Connection>(this, std::move(socket));
  connections_.push_back(*connection);
  counters_.accepted_connections.Add(1);
  StartTimer();
  if (shared_->num_connections - shared_->num_refused >
      limits().max_connections) {
    connection->Refuse();
  } else {
    connection->Start();
  }
}

void Worker::Remove(Connection* connection) {
  connections_.erase(connections_.iterator_to(*connection));
}

std::string_view Worker::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_time_) {
    FormatDate(now, date_);
    date_time_ = now;
  }
  return date_.data();
}

void Worker::StartTimer() {
  if (timer_runs_) return;
  timer_.expires_after(check_period_);
  timer_.async_wait([this](boost::system::error_code error) {
    timer_runs_ = false;
    if (!error) Check();
  });
  timer_runs_ = true;
}

void Worker::Check() {
  if (connections_.empty() || is_finishing_) return;
  const auto now = Clock::now();
  const bool others_wait =
      shared_->others_wait != nullptr && shared_->others_wait();
  for (auto next = connections_.begin(); next != connections_.end();) {
    // One that closes may be destroyed by that, or by nothing but itself.
    const std::shared_ptr<Connection> connection = (next++)->shared_from_this();
    connection->Check(now, others_wait);
  }
  StartTimer();
}

}  // namespace espalier::http
