#include "tests/http/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace espalier::http {

namespace {

constexpr timeval kPatience = {.tv_sec = 10, .tv_usec = 0};

std::string TakeLine(std::string_view* text) {
  const size_t end = text->find("\r\n");
  CHECK(end != std::string_view::npos) << *text;
  std::string line(text->substr(0, end));
  text->remove_prefix(end + 2);
  return line;
}

// Takes chunks off *text; whether the last one was there.
bool TakeChunks(std::string_view* text, RawResponse* response) {
  while (true) {
    const size_t end = text->find("\r\n");
    if (end == std::string_view::npos) return false;
    size_t size = 0;
    const auto [last, error] =
        std::from_chars(text->data(), text->data() + end, size, 16);
    CHECK(error == std::errc() && last == text->data() + end) << *text;
    if (text->size() < end + 2 + size + 2) return false;
    const std::string_view chunk = text->substr(end + 2, size);
    CHECK(text->substr(end + 2 + size, 2) == "\r\n") << *text;
    text->remove_prefix(end + 2 + size + 2);
    if (size == 0) return true;
    response->chunks.emplace_back(chunk);
    response->body += chunk;
  }
}

}  // namespace

std::optional<RawResponse> TakeResponse(std::string* bytes, bool to_head) {
  const size_t head_end = bytes->find("\r\n\r\n");
  if (head_end == std::string::npos) return std::nullopt;
  std::string_view head = std::string_view(*bytes).substr(0, head_end + 2);
  std::string_view rest = std::string_view(*bytes).substr(head_end + 4);
  RawResponse response;
  response.status = std::atoi(TakeLine(&head).substr(9, 3).c_str());
  while (!head.empty()) {
    const std::string line = TakeLine(&head);
    const size_t colon = line.find(": ");
    CHECK(colon != std::string::npos) << line;
    response.headers.push_back({line.substr(0, colon), line.substr(colon + 2)});
  }
  const std::string length(response.Find("Content-Length"));
  const bool has_no_body = to_head || response.status / 100 == 1 ||
                           response.status == 204 || response.status == 304;
  if (has_no_body) {
    response.is_whole = true;
  } else if (response.Find("Transfer-Encoding") == "chunked") {
    response.is_whole = TakeChunks(&rest, &response);
  } else {
    const size_t count = length.empty() ? rest.size() : std::stoul(length);
    response.body = rest.substr(0, count);
    response.is_whole = !length.empty() && response.body.size() == count;
    rest.remove_prefix(response.body.size());
  }
  *bytes = std::string(rest);
  return response;
}

std::vector<RawResponse> TakeResponses(std::string bytes) {
  std::vector<RawResponse> responses;
  while (auto response = TakeResponse(&bytes)) {
    responses.push_back(*std::move(response));
  }
  CHECK(bytes.empty()) << bytes;
  return responses;
}

RawClient::RawClient(int port, int receive_buffer)
    : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  CHECK(fd_ >= 0) << "socket";
  if (receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
               sizeof receive_buffer);
  }
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address),
           0);
}

RawClient::RawClient(RawClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      timed_out_(other.timed_out_),
      received_(std::move(other.received_)) {}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawClient::FinishSending() { shutdown(fd_, SHUT_WR); }

void RawClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RawClient::Reset() {
  const linger now = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  Close();
}

bool RawClient::ReceiveSome() {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = recv(fd_, buffer.data(), buffer.size(), 0);
  timed_out_ = count < 0 && errno == EAGAIN;
  if (count <= 0) return false;
  received_.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

RawResponse RawClient::Receive(bool to_head) {
  while (true) {
    std::string rest = received_;
    auto response = TakeResponse(&rest, to_head);
    if (response.has_value() && response->is_whole) {
      received_ = std::move(rest);
      return *std::move(response);
    }
    if (!ReceiveSome()) return std::move(response).value_or(RawResponse());
  }
}

std::string RawClient::ReceiveBytes(size_t count) {
  while (received_.size() < count && ReceiveSome()) {
  }
  return std::exchange(received_, "");
}

std::optional<std::string> RawClient::ReceiveAll() {
  while (ReceiveSome()) {
  }
  if (timed_out_) return std::nullopt;
  return std::exchange(received_, "");
}

}  // namespace espalier::http
