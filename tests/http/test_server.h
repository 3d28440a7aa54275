// A server of tests, and its handlers.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "http/server.h"

namespace espalier::http {

// Listens on a free port of 127.0.0.1.
// REQUIRES: the options are valid.
std::unique_ptr<Server> StartServer(const Handler& handler,
                                    const ServerOptions& options = {});

// Answers with the request: "METHOD path?query
// body".
boost::asio::awaitable<void> Echo(Exchange& exchange);

// Ends when it is cancelled, or after a minute, and counts such ends.
class Waiting {
 public:
  Handler handler();
  int num_running() const { return counts_->running; }
  int num_cancelled() const { return counts_->cancelled; }

 private:
  struct Counts {
    std::atomic<int> running{0};
    std::atomic<int> cancelled{0};
  };
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

// Sends events of `size` bytes until the client disconnects.
Handler EndlessEvents(size_t size);

// "GET path HTTP/1.1", a Host and the headers, each with its line end.
std::string Get(std::string_view path = "/", std::string_view headers = "");
std::string Post(std::string_view body, std::string_view headers = "");

// Waits until it holds; false after ten seconds.
bool Eventually(const std::function<bool()>& condition);

}  // namespace espalier::http
