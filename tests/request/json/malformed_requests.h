// Request lines that must be refused, each with the whole message of its
// error; all are INVALID_ARGUMENT. They are written for models/en-fr
// (6,000 tokens, a context of 1,024).
#pragma once

#include <string>
#include <vector>

#include "tests/request/json/malformed_params.h"
#include "tests/request/json/malformed_request.h"

namespace espalier::testing {

// Requests with wrong params come last.
inline std::vector<MalformedRequest> MalformedRequests() {
  std::vector<MalformedRequest> requests = {
      // The line.
      {"", "not JSON: there is nothing in it"},
      {"{",
       "not JSON at byte 1: incomplete JSON; a request is one line, "
       "{\"prompt\": \"It rains.\"} for instance"},
      {R"({"prompt": "a", } )",
       "not JSON at byte 16: syntax error; there is a trailing comma before "
       "it"},
      {R"({'prompt': "a"})",
       "not JSON at byte 1: syntax error; strings stand in double quotes"},
      {"nonsense",
       "not JSON at byte 0: syntax error; a request is one line, {\"prompt\": "
       "\"It rains.\"} for instance"},
      {R"({"prompt": "a"} x)",
       "not JSON at byte 16: extra data; a request is one line, {\"prompt\": "
       "\"It rains.\"} for instance"},
      {"{\"prompt\": \"\xff\"}", "not UTF-8 at byte 12"},
      {"{\"prompt\": \"\xed\xa0\x80\"}", "not UTF-8 at byte 12"},
      {R"({"prompt": "\ud800"})", "not JSON at byte 18: unpaired surrogate"},
      {"[]",
       "a request must be a JSON object, got []; of a list jq -c '.[]' makes "
       "a line each"},
      {"7", "a request must be a JSON object, got 7"},
      {"null", "a request must be a JSON object, got null"},
      {"\"text\"", "a request must be a JSON object, got \"text\""},
      {std::string(50, '[') + std::string(50, ']'),
       "nested too deep at byte 32: lists and objects nest 32 deep at most; a "
       "request is one line, {\"prompt\": \"It rains.\"} for instance"},
      // Its fields.
      {"{}",
       "a request needs one of prompt, prompt_tokens and messages, got none"},
      {R"({"id": 1, "params": {}})",
       "a request needs one of prompt, prompt_tokens and messages, got none"},
      {R"({"prompt": "a", "prompt_tokens": [1]})",
       "a request needs one of prompt, prompt_tokens and messages, got "
       "prompt and prompt_tokens"},
      {R"({"prompt": [1, 2]})",
       "prompt must be a string, got [1, 2]; ids are prompt_tokens, each text "
       "has its own line"},
      {R"({"prompt": "a", "promt": "b"})",
       "unknown field \"promt\"; did you mean prompt?"},
      {R"({"Promt": "b"})", "unknown field \"Promt\"; did you mean prompt?"},
      {R"({"prompt": "a", "beams": 2})",
       "unknown field \"beams\"; did you mean num_beams in params?"},
      {R"({"prompt": "a", "temprature": 1})",
       "unknown field \"temprature\"; did you mean temperature in params?"},
      {R"({"prompt": "a", "n_samples": 4})",
       "unknown field \"n_samples\"; did you mean num_return_sequences in "
       "params?"},
      {R"({"text": "a"})", "unknown field \"text\"; did you mean prompt?"},
      {R"({"encoder_prompt": "a"})",
       "unknown field \"encoder_prompt\"; did you mean prompt?"},
      {R"({"input_ids": [1]})",
       "unknown field \"input_ids\"; did you mean prompt_tokens?"},
      {R"({"prompt": "a", "parameters": {}})",
       "unknown field \"parameters\"; did you mean params?"},
      {R"({"prompt": "a", "pad_token_id": 0})",
       "unknown field \"pad_token_id\"; leave it out: the model has its own"},
      {R"({"prompt": "a", "stream": true})", "unknown field \"stream\""},
      {R"({"custom_id": "a", "method": "POST"})",
       "unknown field \"custom_id\"; did you mean id? A line is a request "
       "itself, without method, url and body"},
      {R"({"conversation": []})",
       "unknown field \"conversation\"; did you mean messages?"},
      {R"({"system": "a", "prompt": "b"})",
       "unknown field \"system\"; it is a message of \"role\": \"system\""},
      {R"({"prompt": "a", "tgt_lang": "fr"})",
       "unknown field \"tgt_lang\"; languages are chosen by template, such as "
       "\"fr-en\""},
      {R"({"prompt": "a", "bot_token": 1})",
       "unknown field \"bot_token\"; leave it out: the model has its own"},
      {R"({"prompt": "a", "num_beams": 2})",
       "unknown field \"num_beams\"; it belongs in params"},
      {R"({"id": [1], "prompt": "a"})",
       "id must be a string or a number, got [1]"},
      {R"({"id": true, "prompt": "a"})",
       "id must be a string or a number, got true"},
      {R"({"prompt": 7})", "prompt must be a string, got 7"},
      {R"({"prompt": null, "messages": null})",
       "a request needs one of prompt, prompt_tokens and messages, got none"},
      {R"({"prompt_tokens": [1, null]})",
       "prompt_tokens[1] must be an integer, got null"},
      {R"({"prompt": "a", "promt": null})",
       "unknown field \"promt\"; did you mean prompt?"},
      {R"({"prompt": ["a"]})",
       "prompt must be a string, got [\"a\"]; ids are prompt_tokens, each text "
       "has its own line"},
      {R"({"prompt": ""})", "prompt must not be empty, got \"\""},
      {R"({"prompt_tokens": []})", "prompt_tokens must not be empty, got []"},
      {R"({"prompt_tokens": 5})", "prompt_tokens must be a list, got 5"},
      {R"({"prompt_tokens": "1 4"})",
       "prompt_tokens must be a list, got \"1 4\""},
      {R"({"prompt_tokens": [1, "4"]})",
       "prompt_tokens[1] must be an integer, got \"4\""},
      {R"({"prompt_tokens": [1.5]})",
       "prompt_tokens[0] must be an integer, got 1.5"},
      {R"({"prompt_tokens": [[1]]})",
       "prompt_tokens[0] must be an integer, got [1]"},
      {R"({"prompt_tokens": [1, -1]})",
       "prompt_tokens[1] must be a token id, got -1"},
      {R"({"prompt_tokens": [1, 6000]})",
       "prompt_tokens[1] must be a token id in [0, 6000), got 6000"},
      {R"({"prompt_tokens": [4294967297]})",
       "prompt_tokens[0] must be a token id, got 4294967297"},
      {R"({"prompt_tokens": [1e300]})",
       "prompt_tokens[0] must be an integer in [-2^63, 2^63), got 1e300"},
      {R"({"prompt_tokens": [1, 9223372036854775808]})",
       "prompt_tokens[1] must be an integer in [-2^63, 2^63), got "
       "9223372036854775808"},
      {R"({"prompt": "a", "messages": [{"role": "user", "content": "b"}]})",
       "a request needs one of prompt, prompt_tokens and messages, got prompt "
       "and messages"},
      {R"({"messages": "a"})", "messages must be a list, got \"a\""},
      {R"({"messages": []})", "messages must not be empty, got []"},
      {R"({"messages": ["a"]})", "messages[0] must be an object, got \"a\""},
      {R"({"messages": [{"role": "user"}]})",
       "messages[0].content must be there with role \"user\", got nothing"},
      {R"({"messages": [{"role": "assistant"}, )"
       R"({"role": "system", "content": null}]})",
       "messages[1].content must be there with role \"system\", got null"},
      {R"({"messages": [{"role": "assistant"}, {"content": "a"}]})",
       "messages[1].role must be a string, and not empty, got nothing"},
      {R"({"messages": [{"role": 7}]})",
       "messages[0].role must be a string, and not empty, got 7"},
      {R"({"messages": [{"role": "", "content": "a"}]})",
       "messages[0].role must be a string, and not empty, got \"\""},
      {R"({"messages": [{"role": "user", "content": {"a": 1}}]})",
       "messages[0].content must be a string or a list of {\"type\": "
       "\"text\", \"text\": T}, got {\"a\": 1}"},
      {R"({"messages": [{"role": "user", "content": ["a"]}]})",
       "messages[0].content[0] must be {\"type\": \"text\", \"text\": T}, got "
       "\"a\""},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0].type must be \"text\", got \"image\""},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
       "messages[0].content[0].text must be a string, got nothing"},
      {R"({"prompt": "a", "template": 7})", "template must be a string, got 7"},
      {R"({"prompt": "a", "template": ""})",
       "template must not be empty, got \"\""},
      {R"({"prompt_tokens": [1], "template": "fr-en"})",
       "template needs prompt, whose text it is for, got \"fr-en\""},
      {R"({"prompt": "a", "params": []})", "params must be an object, got []"},
  };
  std::vector<MalformedRequest> params = MalformedParams();
  requests.insert(requests.end(), params.begin(), params.end());
  return requests;
}

}  // namespace espalier::testing
