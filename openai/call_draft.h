// CallDraft: a call that is being read, with the values that are resolved once
// all fields have been read.
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
#include "openai/score_call.h"
#include "request/param_fields.h"

namespace espalier::openai {

struct CallDraft {
  Call call;
  bool strict = false;
  bool has_stream_options = false;
  std::optional<bool> use_beam_search;
  // Chat only: requests log-probabilities, and their number per position.
  std::optional<bool> has_logprobs;
  std::optional<int64_t> top_logprobs;
  bool return_token_strs = false;  // for /tokenize
  // Scoring only: its own fields. Those of other calls are in `call`, the query
  // as its prompt.
  ScoreCall score;
  // Chat only: its tools, and their names.
  json::value tools = nullptr;
  std::vector<std::string> tool_names;
  // Chat only: end of the prompt.
  std::optional<bool> adds_generation_prompt;
  bool continue_final_message = false;
  // Warning of an unknown field that is, or resembles, an input of another
  // route or program; empty if there is none.
  std::string input_warning;

  // Name of the field that says that there is no constraint, unless another one
  // gives it; empty if there is none.
  std::string_view unconstrained_by;

  // Returns the JSON of a param given by its own field; empty if another field
  // set it.
  std::string_view TextOf(std::string_view param) const;

  struct ParamText {
    std::string_view param;
    std::string_view text;
  };
  std::vector<ParamText> texts;
};

// Reads a param of the request format, given by `name`.
// Errors: kInvalidArgument naming the field and the value, also if two names
// give the param two values.
absl::Status ReadGivenParam(const ParamField& field, std::string_view name,
                            const JsonText& json, CallDraft* draft);

// Marks a param as given that another field has set. `name` must outlive the
// draft.
void MarkGiven(std::string_view param, std::string_view name, CallDraft* draft);

class ObjectFields;  // openai/object_fields.h

// Adds a warning for each unknown field.
// Errors: kInvalidArgument naming one, if the call is strict.
absl::Status WarnOfUnknown(const ObjectFields& fields, CallDraft* draft);

// kInvalidArgument of these parts (base/field_error.h), and the input_warning
// if there is one.
absl::Status MissingField(const std::string& parts, const CallDraft& draft);

// Errors: kInvalidArgument naming the list, its limit and its flag.
absl::Status CheckElements(std::string_view name, const JsonText& json,
                           const Limits& limits);

}  // namespace espalier::openai
