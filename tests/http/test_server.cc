#include "tests/http/test_server.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status.h"

namespace espalier::http {

namespace asio = boost::asio;

std::unique_ptr<Server> StartServer(const Handler& handler,
                                    const ServerOptions& options) {
  auto server = Server::Listen(options, handler);
  CHECK(server.ok()) << server.status().ToString();
  return *std::move(server);
}

asio::awaitable<void> Echo(Exchange& exchange) {
  const Request& request = exchange.request();
  std::string text = request.method + " " + request.path;
  if (!request.query.empty()) text += "?" + request.query;
  text += "\n" + request.body;
  Response response;
  response.content_type = "text/plain";
  response.body = std::move(text);
  co_await exchange.Respond(std::move(response));
}

Handler Waiting::handler() {
  return [counts = counts_](Exchange& exchange) -> asio::awaitable<void> {
    asio::steady_timer timer(exchange.executor(), std::chrono::minutes(1));
    ++counts->running;
    const auto [error] =
        co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    --counts->running;
    if (error == asio::error::operation_aborted) ++counts->cancelled;
  };
}

Handler EndlessEvents(size_t size) {
  return [size](Exchange& exchange) -> asio::awaitable<void> {
    const std::string event = "data: " + std::string(size, 'x') + "\n\n";
    exchange.set_holds_place(true);
    co_await exchange.BeginEvents();
    while (co_await exchange.SendEvents(event)) {
    }
  };
}

std::string Get(std::string_view path, std::string_view headers) {
  return Concat("GET ", path, " HTTP/1.1\r\nHost: h\r\n", headers, "\r\n");
}

std::string Post(std::string_view body, std::string_view headers) {
  return Concat("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: ", body.size(),
                "\r\n", headers, "\r\n", body);
}

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace espalier::http
