// PromptRequests: what a client's call becomes for the engine: its prompts as
// tokens, each with the params that count.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/generator.h"
#include "http/message.h"
#include "openai/answer.h"
#include "openai/call.h"
#include "serve/served_model.h"

namespace espalier::serve {

// What is known of a client's call but for its body.
struct Caller {
  std::string request_id;  // never empty
  // Which API key it showed; -1: there are none. Requests of different keys
  // share no pages, and are different tenants.
  int key = -1;
  // Of a batch, whose calls wait behind all others.
  bool is_stored = false;
  // Of the answer, whatever it is.
  std::vector<http::Header> headers = {};
};

// What the request log says of a call, "id=abc key=1".
std::string LogNote(const Caller& caller);

// Has the call go by an id that its body gives.
void TakeRequestId(const std::string& id, Caller* caller);

// Puts the key in front of params that say whose a request is: so nobody has
// those of another key.
// Errors: kInvalidArgument if there is no room for it.
absl::Status AddKey(const Caller& caller, GenerationParams* params);

// What traces know an answer by: its id, which clients may choose, and whose it
// is. So nobody reads the traces of another key.
std::string TraceId(const Caller& caller, std::string_view id);

// A prompt of a call on its way to the engine.
struct PromptRequest {
  EngineRequest engine;
  openai::PromptParts parts;
};

// An error of one of a call's prompts. Where they are a list it says which:
// "prompt[1] has ..." where the prompt is the field, and if there are several
// "; of prompt[1]" after a message that has its number of tokens, or that no
// token is possible, whether or not others would fail, too. Other errors stay
// as they are.
absl::Status OfPrompt(const absl::Status& status, size_t prompt,
                      const openai::Call& call);

// One for each prompt of the call, in order; `id` is the answer's.
// Errors: kInvalidArgument naming the field; as Generator::MakePrompt,
// chat_prompts and Prepare.
absl::StatusOr<std::vector<PromptRequest>> MakePromptRequests(
    const openai::Call& call, const ServedModel& model, const Caller& caller,
    const std::string& id);

// Sequences that they may have together.
int64_t NumRows(const std::vector<PromptRequest>& prompts);

}  // namespace espalier::serve
