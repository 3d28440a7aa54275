// Request and Response: a request that has arrived whole, and its answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::http {

struct Header {
  std::string name;
  std::string value;
};

// The value of the first of `headers` with this name, in whatever case; empty
// if there is none.
std::string_view FindHeader(const std::vector<Header>& headers,
                            std::string_view name);

struct Request {
  std::string method;  // as sent: methods are case-sensitive
  std::string path;    // as sent, not decoded, without the query: "/v1/models"
  std::string query;   // what follows the first '?', without it
  std::vector<Header> headers;
  std::string body;  // chunks are joined, and trailers dropped

  std::string_view Find(std::string_view name) const {
    return FindHeader(headers, name);
  }
};

// The server writes Content-Length, Connection, Date and Transfer-Encoding. A
// header whose name is no token, or whose value has a control character, is
// left out: an echoed value cannot end a header.
struct Response {
  int status = 200;
  std::string content_type = "application/json";  // "": no such header
  std::vector<Header> headers = {};
  std::string body = {};  // not sent in answer to HEAD, nor with 204 and 304
  // Ends the connection after this answer.
  bool close = false;
};

}  // namespace espalier::http
