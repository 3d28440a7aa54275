#include "examples/cli/batch_line.h"

#include <utility>
#include <vector>

#include "base/status.h"
#include "request/json/request_json.h"
#include "request/json/result_json.h"

namespace espalier::cli {

boost::asio::awaitable<LineAnswer> RunLine(Runtime* runtime, std::string line,
                                           int64_t line_number,
                                           const BatchOptions& options) {
  RequestLine request = {
      "", InvalidArgument("a line may have ", options.max_line_bytes,
                          " bytes (--max-line-bytes), this one has more")};
  if (std::ssize(line) <= options.max_line_bytes) {
    request = ParseRequestLine(line, options.limits);
  }
  std::string().swap(line);  // its memory is the request's from now on
  if (request.id.empty()) request.id = std::to_string(line_number);
  if (!request.body.ok()) {
    const absl::Status wrong = request.body.status();
    co_return LineAnswer{WriteErrorLine(request.id, wrong), wrong.code()};
  }
  std::string& caller_id = request.body->caller_id;
  if (caller_id.empty()) caller_id = request.id;
  const std::vector<GivenAlias> aliases = request.body->aliases;
  const absl::StatusOr<Generation> answer =
      co_await runtime->Run(*std::move(request.body));
  if (!answer.ok()) {
    const absl::Status status = InWordsOfLine(aliases, answer.status());
    co_return LineAnswer{WriteErrorLine(request.id, status), status.code()};
  }
  co_return LineAnswer{WriteResultLine(request.id, *answer, answer->texts)};
}

}  // namespace espalier::cli
