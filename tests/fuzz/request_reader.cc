// Requests out of bytes: how these are cut changes nothing.
#include "http/request_reader.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

using ReaderState = http::RequestReader::State;

std::string DescribeRequest(const http::RequestHead& head) {
  const http::Request& request = head.request;
  std::string text =
      Concat(request.method, " ", request.path, "?", request.query,
             head.is_http_1_0, head.keep_alive, head.expects_continue, "\n");
  for (const http::Header& header : request.headers) {
    text += Concat(header.name, ": ", header.value, "\n");
  }
  return text + request.body;
}

// All that is read of `bytes`, which come `piece` at a time.
std::string ReadRequests(std::string_view bytes, size_t piece) {
  http::Limits limits;
  limits.max_header_bytes = 256;
  limits.max_body_bytes = 128;
  std::string requests;
  while (!bytes.empty()) {
    http::RequestReader reader(&limits);
    while (!bytes.empty() && reader.state() < ReaderState::kDone) {
      const std::string_view part = bytes.substr(0, piece);
      const size_t taken = reader.Read(part);
      CHECK_LE(taken, part.size());
      CHECK(taken == part.size() || reader.state() >= ReaderState::kDone);
      bytes.remove_prefix(taken);
    }
    requests += Concat("state ", static_cast<int>(reader.state()), "\n");
    if (reader.state() == ReaderState::kRefused) {
      const http::Refusal& refusal = reader.refusal();
      CHECK(refusal.status >= 400 && !refusal.message.empty());
      return requests + Concat(refusal.status, " ", refusal.message);
    }
    if (reader.state() >= ReaderState::kBody) {
      requests += DescribeRequest(reader.head());
    }
  }
  return requests;
}

FUZZ_TARGET(request_reader, input) {
  const size_t piece = 2 + TakeChoice(&input) % 64;
  const std::string whole = ReadRequests(input, input.size());
  for (const size_t size : {size_t{1}, piece}) {
    const std::string in_pieces = ReadRequests(input, size);
    CHECK(in_pieces == whole) << in_pieces << "\nis not\n" << whole;
  }
}

}  // namespace

}  // namespace espalier::fuzz
