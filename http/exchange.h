// Exchange: one request and its answer, which is either one Response or a
// stream of events (server-sent events) of any length.
//
//   asio::awaitable<void> Handle(http::Exchange& exchange) {
//     if (exchange.request().path != "/count") {
//       co_await exchange.Respond({.status = 404, .body = "{}"});
//       co_return;
//     }
//     co_await exchange.BeginEvents();
//     for (int i = 0; i < 10; ++i) {
//       if (!co_await exchange.SendEvents(Concat("data: ", i, "\n\n"))) break;
//     }
//   }
//
// A handler runs on its connection's executor, that of one thread, and stays
// there; it must not block it. While it runs, the server watches the client,
// and cancels the handler (asio's terminal cancellation) as soon as the client
// closes its connection, be it only its sending half: what the handler awaits
// ends at once, and by asio's rule its next co_await throws
// boost::system::system_error, which the server takes as the end of it. A
// handler that has to do something then says
// `co_await this_coro::throw_if_cancelled(false)`; then all functions below
// return false. Two exceptions: a Response, once given, is sent on to a client
// that has closed its sending half only; and while bytes of a client's next
// request wait behind the present one, its end is noticed by a poll, ten times
// a second or more often.
//
// A handler that returns without an answer, or throws before one, is answered
// for with 500. One that returns ends its events properly; one that throws
// within its events has the connection cut off, so that the client sees that
// something is missing.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/message.h"

namespace espalier::http {

class Peer;  // http/peer.h

// Thread safety: for its handler alone, on the connection's executor.
class Exchange {
 public:
  // Made by the server, or for a call that no connection carries.
  Exchange(Peer* peer, Request request);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Request& request() const { return request_; }
  // request() is empty then.
  Request TakeRequest() { return std::move(request_); }
  // The next bytes of the body; empty at its end. A body that is streamed
  // (StreamedBodyLimit) comes as it arrives, in pieces of some 64 KiB, and the
  // client waits while none is read. Throws if the rest does not come: the
  // client has gone, or what it sends is late or no body, which the server then
  // answers by 408, 400 or 413. An answer before the end of the body ends the
  // connection.
  boost::asio::awaitable<std::string> ReadBody();
  // "127.0.0.1" or "::1"; empty if the client has gone.
  std::string ClientAddress() const;
  boost::asio::any_io_executor executor() const;

  // Completes when the system has taken the whole answer. False if the client
  // has gone, or takes nothing for Limits::write_timeout.
  // REQUIRES: !begun().
  boost::asio::awaitable<bool> Respond(Response response);

  // Sends the head of an answer whose body follows in pieces: chunked, or to a
  // client of HTTP/1.0 until the connection's end. The body of `head` is not
  // sent. False as Respond.
  // REQUIRES: !begun().
  boost::asio::awaitable<bool> BeginStream(Response head);
  // Sends a piece of the body in one write. Waits while the client does not
  // read, so that its handler is not ahead of it by more than
  // Limits::max_unsent_bytes. False as Respond. `piece` must live until it
  // completes.
  // REQUIRES: BeginStream was called.
  boost::asio::awaitable<bool> SendPiece(std::string_view piece);

  // Sends the head of a stream of events: 200, text/event-stream, no caching,
  // no buffering by proxies. As BeginStream.
  boost::asio::awaitable<bool> BeginEvents(std::vector<Header> headers = {});
  // Sends events as they are ("data: ...\n\n"), together. As SendPiece.
  // REQUIRES: BeginEvents was called.
  boost::asio::awaitable<bool> SendEvents(std::string_view events);

  // Sets an additional text for the log of answers.
  void set_note(std::string note);

  // True while the exchange holds what others may wait for
  // (ServerOptions::others_wait): then a client that reads too slowly is cut
  // off by Limits::crowded_write_timeout. False at first.
  void set_holds_place(bool holds_place);

  // True once an answer was begun.
  bool begun() const { return begun_; }
  // True once the client is known to have gone.
  bool client_gone() const;

 private:
  Peer* peer_;  // outlives this
  Request request_;
  bool begun_ = false;
};

// Called once a request, from the server's threads: several at a time.
using Handler = std::function<boost::asio::awaitable<void>(Exchange&)>;

}  // namespace espalier::http
