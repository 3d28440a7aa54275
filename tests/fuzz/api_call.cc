// Bodies of requests to a server: accepted ones are JSON, and others get status
// 400 with a message.
#include <algorithm>
#include <string>

#include "base/byte_order_mark.h"
#include "base/check.h"
#include "base/json.h"
#include "openai/call.h"
#include "openai/error.h"
#include "openai/tokenize.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

absl::Status ReadBody(size_t kind, std::string_view body) {
  openai::Limits limits;
  limits.max_list_elements = 100;
  limits.max_prompts = 4;
  limits.max_messages = 4;
  switch (kind) {
    case 0:
      return ReadCall(openai::Api::kCompletions, body, limits).status();
    case 1:
      return ReadCall(openai::Api::kChat, body, limits).status();
    case 2:
      return ReadCall(openai::Api::kTokens, body, limits).status();
    case 3:
      return ReadTokenizeCall(body, limits).status();
    case 4:
      return ReadDetokenizeCall(body, limits).status();
    default:
      return ReadCall(openai::Api::kResponses, body, limits).status();
  }
}

FUZZ_TARGET(api_call, input) {
  const absl::Status status = ReadBody(TakeChoice(&input) % 6, input);
  const auto value = ParseJson(WithoutByteOrderMark(input));
  if (status.ok()) {
    CHECK(value.ok() && value->is_object()) << input;
    return;
  }
  CheckBadInput(status);
  const openai::Error error = openai::ErrorOf(status);
  CHECK_EQ(error.http_status, 400);
  // Errors in JSON name the field. Exponents of nine digits are not accepted as
  // JSON.
  CHECK(!value.ok() || !value->is_object() || !error.param.empty() ||
        error.message.starts_with("unknown field") ||
        error.message.starts_with("exponent too long"))
      << error.message;
  const auto written = ParseJson(openai::WriteError(error));
  CHECK(written.ok()) << written.status().ToString();
}

}  // namespace

}  // namespace espalier::fuzz
