// A server with nothing behind it, for http_load.
//
//   http_null_server [--port PORT] [--threads N]
//
// GET /events?COUNT,SIZE,MICROSECONDS streams COUNT events of SIZE bytes at
// intervals of MICROSECONDS; any other request gets 100 bytes. Ends with its
// standard input, and prints its counters.
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/server.h"

namespace {

namespace asio = boost::asio;
namespace http = espalier::http;

asio::awaitable<void> SendEvents(http::Exchange& exchange) {
  long count = 0;
  long size = 0;
  long microseconds = 0;
  std::sscanf(exchange.request().query.c_str(), "%ld,%ld,%ld", &count, &size,
              &microseconds);
  const std::string event =
      "data: " + std::string(static_cast<size_t>(size), 'x') + "\n\n";
  asio::steady_timer timer(exchange.executor());
  co_await exchange.BeginEvents();
  for (long i = 0; i < count; ++i) {
    if (microseconds > 0) {
      timer.expires_after(std::chrono::microseconds(microseconds));
      co_await timer.async_wait(asio::use_awaitable);
    }
    if (!co_await exchange.SendEvents(event)) co_return;
  }
}

asio::awaitable<void> Handle(http::Exchange& exchange) {
  if (exchange.request().path == "/events") {
    co_await SendEvents(exchange);
    co_return;
  }
  http::Response response;
  response.body = std::string(100, ' ');
  co_await exchange.Respond(std::move(response));
}

}  // namespace

int main(int argc, char** argv) {
  http::ServerOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--port") options.port = std::atoi(argv[i + 1]);
    if (option == "--threads") options.num_threads = std::atoi(argv[i + 1]);
  }
  const auto server = http::Server::Listen(options, Handle);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  const http::ServerStats stats = (*server)->stats();
  std::printf(
      "{\"accepted\": %ld, \"answered\": %ld, \"refused\": %ld, "
      "\"timeouts\": %ld, \"clients_gone\": %ld, \"open\": %ld, "
      "\"running\": %ld}\n",
      stats.accepted_connections, stats.responses[2], stats.refused_connections,
      stats.timeouts, stats.clients_gone, stats.open_connections,
      stats.running_exchanges);
  return 0;
}
