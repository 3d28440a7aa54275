#include "http/exchange.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "http/connection.h"

namespace espalier::http {

namespace asio = boost::asio;

Exchange::Exchange(Connection* connection, Request request)
    : connection_(connection), request_(std::move(request)) {}

std::string Exchange::ClientAddress() const {
  return connection_->ClientAddress();
}

asio::any_io_executor Exchange::executor() const {
  return connection_->executor();
}

asio::awaitable<bool> Exchange::Respond(Response response) {
  CHECK(!begun_) << "a request is answered twice";
  begun_ = true;
  return connection_->Respond(std::move(response));
}

asio::awaitable<bool> Exchange::BeginEvents(std::vector<Header> headers) {
  CHECK(!begun_) << "a request is answered twice";
  begun_ = true;
  return connection_->BeginEvents(std::move(headers));
}

asio::awaitable<bool> Exchange::SendEvents(std::string_view events) {
  CHECK(begun_) << "events are sent before they are begun";
  return connection_->SendEvents(events);
}

void Exchange::set_note(std::string note) {
  connection_->SetNote(std::move(note));
}

bool Exchange::client_gone() const { return connection_->client_gone(); }

}  // namespace espalier::http
