// A client's bytes: the responses do not depend on how they are split.
#include <string>

#include "base/check.h"
#include "base/status.h"
#include "http/serve_bytes.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

boost::asio::awaitable<void> EchoRequest(http::Exchange& exchange) {
  const http::Request& request = exchange.request();
  http::Response response;
  response.headers = request.headers;
  response.body = Concat(request.method, " ", request.path, "?", request.query,
                         "\n", request.body);
  co_await exchange.Respond(std::move(response));
}

std::string AnswersTo(std::string_view bytes, size_t piece) {
  http::ServerOptions options;
  options.limits.max_header_bytes = 512;
  options.limits.max_body_bytes = 1024;
  std::string answers = http::ServeBytes(bytes, piece, options, EchoRequest);
  // It is sent only if the server waits for the body, which depends on how the
  // bytes are split.
  const std::string_view interim = "HTTP/1.1 100 Continue\r\n\r\n";
  for (size_t at = answers.find(interim); at != answers.npos;
       at = answers.find(interim, at)) {
    answers.erase(at, interim.size());
  }
  // It may change between two answers.
  for (size_t at = answers.find("\r\nDate: "); at != answers.npos;
       at = answers.find("\r\nDate: ", at + 8)) {
    // Not an echo of what looks like one, and reaches into the next answer.
    if (answers.find('\r', at + 8) == at + 8 + 29) {
      answers.replace(at + 8, 29, "-");
    }
  }
  return answers;
}

FUZZ_TARGET(http_bytes, input) {
  const size_t piece = 1 + TakeChoice(&input) % 64;
  const std::string answers = AnswersTo(input, 0);
  CHECK(answers.empty() || answers.starts_with("HTTP/1.1 ")) << answers;
  const std::string answers_to_pieces = AnswersTo(input, piece);
  CHECK(answers == answers_to_pieces) << answers << "\n" << answers_to_pieces;
}

}  // namespace

}  // namespace espalier::fuzz
