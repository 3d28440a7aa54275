// Server: HTTP/1.1 (and 1.0) over TCP, for handlers that are coroutines. It
// handles connections, requests, limits, time-outs and event streams,
// independent of the content.
//
//   http::ServerOptions options;
//   options.port = 8000;
//   ASSIGN_OR_RETURN(auto server, http::Server::Listen(
//       options, [](http::Exchange& exchange) -> asio::awaitable<void> {
//         co_await exchange.Respond({.body = "{}"});
//       }));
//
// It has threads of its own. Each runs an io_context of its own with its share
// of the connections, so that nothing of a connection is shared: no locks, no
// strands, and cancelling a handler is no race. One thread accepts.
//
// A connection that idles holds no buffers and no coroutine, about a kilobyte.
// Its requests are handled one after the other; a client may send the next
// before it has the answer (pipelining).
//
// A request that violates RFC 9112 is refused with 400 and its connection
// closed: bare line feeds, control characters, folded headers, no or two Host
// headers, two lengths, a length beside Transfer-Encoding, codings other than
// chunked. So is every request that a proxy in front might parse differently
// (request smuggling). `Expect: 100-continue` is honoured.
//
// If the process may open no more files, new connections wait in the system's
// queue until others have closed. If an allocation fails, only its connection
// ends, if necessary within an answer: the server still accepts connections,
// and its time-outs still work.
//
// Shutdown: after Drain each answer ends its connection; WaitUntilIdle waits
// for the running exchanges; Stop, or the destructor, cuts off the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "http/answer_record.h"
#include "http/exchange.h"
#include "http/limits.h"
#include "http/message.h"

namespace espalier::http {

// Makes the answer to an error of HTTP itself, which no handler sees: 400, 408,
// 413, 417, 431, 500 (a handler failed), 503 (too many connections or bodies).
// The message is one line of plain text. Called on any thread; must not throw.
using ErrorResponse =
    std::function<Response(int status, std::string_view message)>;

// The refusal of a request by its head.
struct HeadRefusal {
  Response response;
  std::string note = {};  // as Exchange::set_note
};

// Checks the head of a request before its body has arrived, so that an
// unauthorized body or one of the wrong type is neither awaited nor stored. A
// result refuses the request and ends the connection. Requests that arrive
// whole skip this check: their handler must make it, too. Called on any thread;
// must not throw.
using HeadCheck =
    std::function<std::optional<HeadRefusal>(const Request& head)>;

// {"error": message}
Response PlainErrorResponse(int status, std::string_view message);

// Returns true while others wait for resources that exchanges hold: then slow
// readers are cut off sooner (Limits::crowded_write_timeout). Called on any
// thread, several times a second; must not throw or block.
using OthersWait = std::function<bool()>;

struct ServerOptions {
  // An address, or a name: then the server listens on each of its addresses
  // that this machine has ("localhost": 127.0.0.1 and ::1). "::" includes IPv4.
  std::string host = "127.0.0.1";
  int port = 0;  // 0: one that is free
  // True: all of these addresses must be this machine's alone.
  bool loopback_only = false;
  int num_threads = 1;
  Limits limits;
  ErrorResponse error_response = PlainErrorResponse;
  HeadCheck head_check = nullptr;                   // none: every body is taken
  StreamedBodyLimit streamed_body_limit = nullptr;  // none: none is streamed
  AnswerLog answer_log = nullptr;    // none: answers are not logged
  OthersWait others_wait = nullptr;  // none: they never do
};

// Counts since the start, and numbers of now.
struct ServerStats {
  int64_t open_connections = 0;
  int64_t running_exchanges = 0;
  int64_t accepted_connections = 0;
  int64_t refused_connections = 0;  // beyond max_connections; in accepted, too
  int64_t responses[6] = {};        // by status / 100; [0] is unused
  int64_t clients_gone = 0;         // during an exchange, slow readers included
  int64_t slow_readers = 0;         // cut off; in clients_gone, too
  int64_t timeouts = 0;             // while reading headers or bodies
  int64_t bytes_received = 0;
  int64_t bytes_sent = 0;
};

class ServerCore;  // http/server_core.h

// Thread safety: any thread calls anything, but only others than the server's
// call WaitUntilIdle, Stop and the destructor.
class Server {
 public:
  // Errors: kInvalidArgument naming the option and its value, or an address
  // that loopback_only does not allow; kNotFound for a host name without an
  // address; kUnavailable, with the system's words, if an address cannot be
  // listened on.
  static absl::StatusOr<std::unique_ptr<Server>> Listen(
      const ServerOptions& options, Handler handler);
  ~Server();  // Stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  // The addresses that it listens on: "127.0.0.1:8000", "[::1]:8000".
  std::vector<std::string> addresses() const;

  // From now on each answer says "Connection: close" and ends its connection.
  // New connections are still accepted, so that clients can query the state;
  // the handler decides which requests to refuse meanwhile.
  void Drain();
  // Waits until no exchange runs; false if some still do after `timeout`.
  bool WaitUntilIdle(absl::Duration timeout);
  // Accepts no more, cancels the handlers that run, closes all connections and
  // joins the threads. Handlers that do not end within a second of being
  // cancelled are destroyed where they wait.
  void Stop();

  ServerStats stats() const;

 private:
  explicit Server(std::unique_ptr<ServerCore> core);

  std::unique_ptr<ServerCore> core_;
};

}  // namespace espalier::http
