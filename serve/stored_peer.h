// StoredPeer: the answer to a call that no client waits for, whole: a Response,
// or the pieces of one.
//
// Thread safety: that of its exchange.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "http/message.h"
#include "http/peer.h"

namespace espalier::serve {

class StoredPeer : public http::Peer {
 public:
  explicit StoredPeer(boost::asio::any_io_executor executor)
      : executor_(std::move(executor)) {}

  boost::asio::any_io_executor executor() override { return executor_; }
  std::string ClientAddress() const override { return ""; }
  bool client_gone() const override { return false; }
  void SetNote(std::string /*note*/) override {}
  void SetHoldsPlace(bool /*holds_place*/) override {}

  boost::asio::awaitable<std::string> ReadBody() override { co_return ""; }
  boost::asio::awaitable<bool> Respond(http::Response response) override {
    response_ = std::move(response);
    co_return true;
  }
  boost::asio::awaitable<bool> BeginStream(http::Response head) override {
    response_ = std::move(head);
    co_return true;
  }
  boost::asio::awaitable<bool> SendPiece(std::string_view piece) override {
    response_.body += piece;
    co_return true;
  }

  http::Response TakeResponse() { return std::move(response_); }

 private:
  const boost::asio::any_io_executor executor_;
  http::Response response_;
};

}  // namespace espalier::serve
