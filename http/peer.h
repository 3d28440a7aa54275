// Peer: the recipient of an exchange's answer: a connection of the server, or a
// caller without one, which collects the answer. http/exchange.h documents each
// function.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <string>
#include <string_view>

#include "http/message.h"

namespace espalier::http {

class Peer {
 public:
  virtual ~Peer() = default;

  virtual boost::asio::any_io_executor executor() = 0;
  virtual std::string ClientAddress() const = 0;
  virtual bool client_gone() const = 0;
  virtual void SetNote(std::string note) = 0;
  virtual void SetHoldsPlace(bool holds_place) = 0;
  virtual boost::asio::awaitable<std::string> ReadBody() = 0;
  virtual boost::asio::awaitable<bool> Respond(Response response) = 0;
  virtual boost::asio::awaitable<bool> BeginStream(Response head) = 0;
  virtual boost::asio::awaitable<bool> SendPiece(std::string_view piece) = 0;
};

}  // namespace espalier::http
