#include "serve/route_call.h"

#include <sys/random.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "serve/generation_calls.h"

namespace espalier::serve {
namespace {

http::Response JsonResponse(std::vector<http::Header> headers,
                            std::string body) {
  http::Response response;
  response.headers = std::move(headers);
  response.body = std::move(body);
  return response;
}

}  // namespace

std::string NewRequestId() {
  uint32_t words[3] = {};
  if (getrandom(words, sizeof(words), 0) != sizeof(words)) {
    for (uint32_t& word : words) word = std::random_device()();
  }
  return absl::StrCat(absl::Hex(words[0], absl::kZeroPad8),
                      absl::Hex(words[1], absl::kZeroPad8),
                      absl::Hex(words[2], absl::kZeroPad8));
}

RouteWork RespondJson(RouteCall& call, std::string body) {
  co_await call.exchange.Respond(
      JsonResponse(std::move(call.caller.headers), std::move(body)));
}

RouteWork Refuse(RouteCall& call, const openai::Error& error) {
  co_await call.exchange.Respond(
      ErrorResponse(error, std::move(call.caller.headers)));
}

RouteWork RespondOr(RouteCall& call, absl::StatusOr<std::string> body) {
  if (body.ok()) {
    co_await RespondJson(call, *std::move(body));
  } else {
    co_await Refuse(call, openai::ErrorOf(body.status()));
  }
}

}  // namespace espalier::serve
