#include "http/exchange.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "http/peer.h"

namespace espalier::http {

namespace asio = boost::asio;

Exchange::Exchange(Peer* peer, Request request)
    : peer_(peer), request_(std::move(request)) {}

std::string Exchange::ClientAddress() const { return peer_->ClientAddress(); }

asio::any_io_executor Exchange::executor() const { return peer_->executor(); }

asio::awaitable<std::string> Exchange::ReadBody() {
  if (!request_.body.empty()) {
    co_return std::exchange(request_.body, std::string());
  }
  co_return co_await peer_->ReadBody();
}

asio::awaitable<bool> Exchange::Respond(Response response) {
  CHECK(!begun_) << "a request is answered twice";
  begun_ = true;
  return peer_->Respond(std::move(response));
}

asio::awaitable<bool> Exchange::BeginStream(Response head) {
  CHECK(!begun_) << "a request is answered twice";
  begun_ = true;
  return peer_->BeginStream(std::move(head));
}

asio::awaitable<bool> Exchange::SendPiece(std::string_view piece) {
  CHECK(begun_) << "a piece is sent before the head";
  return peer_->SendPiece(piece);
}

asio::awaitable<bool> Exchange::BeginEvents(std::vector<Header> headers) {
  headers.push_back({"Cache-Control", "no-cache"});
  headers.push_back({"X-Accel-Buffering", "no"});  // nginx's word for it
  return BeginStream(
      {.content_type = "text/event-stream", .headers = std::move(headers)});
}

asio::awaitable<bool> Exchange::SendEvents(std::string_view events) {
  return SendPiece(events);
}

void Exchange::set_note(std::string note) { peer_->SetNote(std::move(note)); }

void Exchange::set_holds_place(bool holds_place) {
  peer_->SetHoldsPlace(holds_place);
}

bool Exchange::client_gone() const { return peer_->client_gone(); }

}  // namespace espalier::http
