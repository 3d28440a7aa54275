#include "http/response_head.h"

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace espalier::http {

namespace {

bool IsTokenByte(char byte) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z') ||
         kMarks.find(byte) != std::string_view::npos;
}

bool IsValueByte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return (value >= 0x20 && value != 0x7f) || byte == '\t';
}

bool IsValue(std::string_view value) {
  return std::all_of(value.begin(), value.end(), IsValueByte);
}

// True for headers that the server itself writes: where the answer ends, and
// when it was made.
bool IsOurs(std::string_view name) {
  for (const char* ours :
       {"Connection", "Content-Length", "Date", "Transfer-Encoding"}) {
    if (absl::EqualsIgnoreCase(ToAbsl(name), ours)) return true;
  }
  return false;
}

bool MayBeSent(const Header& header) {
  return !header.name.empty() &&
         std::all_of(header.name.begin(), header.name.end(), IsTokenByte) &&
         IsValue(header.value) && !IsOurs(header.name);
}

void Append(std::string* head, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) head->append(part);
}

void AppendFraming(const Response& response, const Framing& framing,
                   std::string* head) {
  if (framing.body == BodyFraming::kChunked) {
    head->append("Transfer-Encoding: chunked\r\n");
  } else if (framing.body == BodyFraming::kLength &&
             !HasNoBody(response.status)) {
    absl::StrAppend(head, "Content-Length: ", response.body.size(), "\r\n");
  }
  if (framing.close) {
    head->append("Connection: close\r\n");
  } else if (framing.says_keep_alive) {
    head->append("Connection: keep-alive\r\n");
  }
}

}  // namespace

void AppendResponseHead(const Response& response, const Framing& framing,
                        std::string_view date, std::string* head) {
  const auto reason =
      boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(
          static_cast<unsigned>(response.status)));
  absl::StrAppend(head, "HTTP/1.1 ", response.status, " ");
  Append(head, {{reason.data(), reason.size()}, "\r\nDate: ", date, "\r\n"});
  if (!response.content_type.empty() && IsValue(response.content_type)) {
    Append(head, {"Content-Type: ", response.content_type, "\r\n"});
  }
  for (const Header& header : response.headers) {
    if (!MayBeSent(header)) continue;
    Append(head, {header.name, ": ", header.value, "\r\n"});
  }
  AppendFraming(response, framing, head);
  head->append("\r\n");
}

bool HasNoBody(int status) {
  return status / 100 == 1 || status == 204 || status == 304;
}

}  // namespace espalier::http
