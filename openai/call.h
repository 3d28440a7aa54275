// Call: the validated body of a request to OpenAI's API. The fields are
// OpenAI's, the ones that vLLM adds, under its names, and all fields of the
// request format (docs/server.md has the table).
//
//   absl::StatusOr<Call> call = ReadCall(Api::kCompletions, body, limits);
//   if (!call.ok()) return WriteError(ErrorOf(call.status()));
//
// Only the types of params and the limits of this server are checked here. The
// engine checks ranges and combinations (ValidateParams); ErrorOf rewrites its
// errors with the names that the call uses.
//
// A body is scanned once, and its lists are parsed directly into the call: a
// few nanoseconds per number, and no memory beside the call's own.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "openai/limits.h"
#include "openai/tool_choice.h"
#include "request/generation_params.h"
#include "request/param_fields.h"
#include "request/text_or_tokens.h"
#include "text/chat/chat_template.h"
#include "text/chat/tool_call_stream.h"

namespace espalier::openai {

enum class Api {
  kCompletions,  // POST /v1/completions
  kChat,         // POST /v1/chat/completions
  kResponses,    // POST /v1/responses: a chat with one answer
  kTokens,       // POST /inference/v1/generate: token ids in and out
};

enum class TruncationSide {
  kLeft,   // the last tokens stay
  kRight,  // the first
};

struct Call {
  Api api = Api::kCompletions;
  std::string model = {};  // empty: none was named

  // One of the two.
  std::vector<TextOrTokens> prompts = {};
  bool prompts_are_list = false;        // also of one: it is called prompt[0]
  std::optional<ChatInputs> chat = {};  // each content a string, or null
  // Calls of the chat's tools that its answer may have: the names of the tools,
  // and the format, which is the model's: the server sets it.
  ToolCallOptions tool_calls = {};
  bool parallel_tool_calls = true;  // false: the answer has one at most
  ToolChoice tool_choice = {};
  // With a constraint of calls: the place of each of its functions among the
  // chat's tools.
  std::vector<size_t> constrained_tools = {};
  // With a constraint of calls: an answer without calls is any text.
  bool calls_may_be_text = false;

  // Text prompts: false omits special tokens. Chat: true puts BOS in front of
  // the rendered template unless it begins with one. Unset: as the prompt
  // template or chat template says.
  std::optional<bool> add_special_tokens = {};
  std::string template_name = {};  // a prompt template; empty: the default
  // Text prompts: parses names of special tokens as those tokens.
  bool parse_special = false;
  // Each sentence of a text is translated by itself (espalier/split_text.h).
  // Unset: the server or the model decides.
  std::optional<bool> split_sentences = {};
  // A longer prompt is truncated to this many tokens; -1: to the model's
  // context.
  std::optional<int64_t> truncate_prompt_tokens = {};
  TruncationSide truncation_side = TruncationSide::kLeft;

  // Params that are not given have the defaults of GenerationParams;
  // ResolveParams (openai/resolve_params.h) returns the effective ones.
  GenerationParams params = {};
  std::vector<GivenParam> given = {};
  // Name of the language of params.constraint in the call, such as
  // "response_format.json_schema.schema"; empty if the param itself is given.
  // With a constraint of calls it is that of the schema of texts.
  std::string constraint_path = {};

  // Limits of the server; params that defaults add must keep them, too.
  Limits limits = {};

  // Contents of the answer.
  bool stream = false;
  bool stream_beams = false;      // the state of the search at every step
  bool include_usage = false;     // a last event with the usage
  bool continuous_usage = false;  // the usage so far in every event
  bool echo = false;              // the prompt in front of each text
  bool prompt_only = false;       // echo with max_tokens 0: nothing else
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // log-probabilities name tokens "token_id:7"
  bool shows_prompt_logprobs = false;
  bool shows_text = true;  // false: token ids alone

  // kResponses only: repeated in the answer.
  std::string instructions = {};  // the first message, too
  std::string metadata = {};      // JSON as it was given; empty: none was
  std::string text_format = {};   // as metadata
  std::string tools = {};
  std::string tool_choice_text = {};

  std::string request_id = {};  // empty: none was given
  // Warnings of unknown fields and of fields without effect. With "strict":
  // true these are errors instead.
  std::vector<std::string> warnings = {};

  // Returns the name that the call uses for a param: "n".
  std::string_view NameOf(std::string_view param) const;
  bool Gives(std::string_view param) const;
};

// Returns the field that holds the input of a call: "prompt".
std::string_view InputOf(Api api);

// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<Call> ReadCall(Api api, std::string_view body,
                              const Limits& limits = {});

}  // namespace espalier::openai
