// CallDraft: a call while its fields are read, with what is decided when all
// have been.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "openai/call.h"
#include "openai/limits.h"
#include "request/json/param_fields.h"

namespace espalier::openai {

struct CallDraft {
  Call call;
  bool strict = false;
  bool has_stream_options = false;
  std::optional<bool> use_beam_search;
  // Of a chat: whether there are log-probabilities, and how many at a place.
  std::optional<bool> has_logprobs;
  std::optional<int64_t> top_logprobs;
  bool return_token_strs = false;  // of /tokenize
  // Of a chat: its tools, their names, and whether they may be called.
  json::value tools = nullptr;
  std::vector<std::string> tool_names;
  bool wants_tools = true;
  // Of a chat: how its prompt ends.
  std::optional<bool> adds_generation_prompt;
  bool continue_final_message = false;
  // The warning of an unknown field that another route or another program goes
  // on from, or that is nearly one; empty if there is none.
  std::string input_warning;

  // The text of a param that was given by its own; empty if it was set in
  // another way.
  std::string_view TextOf(std::string_view param) const;

  struct ParamText {
    std::string_view param;
    std::string_view text;
  };
  std::vector<ParamText> texts;
};

// Reads a param of the request format, given by `name`.
// Errors: kInvalidArgument naming the field and the value, also where the param
// is given twice by two names, with two values.
absl::Status ReadGivenParam(const ParamField& field, std::string_view name,
                            const JsonText& json, CallDraft* draft);

// Marks a param as given that was set in another way. `name` must outlive the
// draft.
void MarkGiven(std::string_view param, std::string_view name, CallDraft* draft);

// REQUIRES: there is such a param.
const ParamField& ParamNamed(std::string_view name);

// What depends on several fields: beams, log-probabilities, the limits.
// Errors: kInvalidArgument naming the field and the value.
absl::Status SettleCall(CallDraft* draft);

// What depends on several fields of prompts: "template" needs a prompt that is
// a text, and special tokens; a chat may continue its last message. Errors:
// kInvalidArgument naming the field and the value.
absl::Status SettlePrompts(CallDraft* draft);

class ObjectFields;  // openai/object_fields.h

// Takes the fields that are not known as warnings.
// Errors: kInvalidArgument naming one, if the call is strict.
absl::Status WarnOfUnknown(const ObjectFields& fields, CallDraft* draft);

// kInvalidArgument with this message, and the input_warning if there is one.
absl::Status MissingField(std::string_view message, const CallDraft& draft);

// Errors: kInvalidArgument naming the list, its limit and its flag.
absl::Status CheckElements(std::string_view name, const JsonText& json,
                           const Limits& limits);

}  // namespace espalier::openai
