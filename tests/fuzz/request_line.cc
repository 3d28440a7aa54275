// Lines of the request format: accepted ones are JSON, and so is their id.
#include <string>

#include "base/check.h"
#include "base/json.h"
#include "request/json/request_json.h"
#include "tests/fuzz/fuzz_target.h"

namespace espalier::fuzz {

namespace {

FUZZ_TARGET(request_line, input) {
  const RequestLine line = ParseRequestLine(input, {.max_list_elements = 100});
  if (!line.id.empty()) CHECK(ParseJson(line.id).ok()) << line.id;
  if (!line.body.ok()) {
    CheckBadInput(line.body.status());
    return;
  }
  const auto value = ParseJson(input);
  CHECK(value.ok() && value->is_object()) << input;
  const RequestBody& body = *line.body;
  // Token ids may be none; to refuse that is for ValidateRequest.
  CHECK_LE(body.prompt.has_value() + !body.prompt_tokens.empty() +
               body.messages.has_value(),
           1);
}

}  // namespace

}  // namespace espalier::fuzz
