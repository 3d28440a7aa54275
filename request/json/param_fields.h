// The fields of `params` in the request format: the one list that parsing, the
// command line's options and their help are made from.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "request/generation_params.h"

namespace espalier {

// Reads a field's value into its place.
struct ParamReader {
  absl::Status operator()(std::string_view field, const json::value& value,
                          GenerationParams* params) const {
    return from_value(field, value, params);
  }
  absl::Status operator()(std::string_view field, const JsonText& json,
                          GenerationParams* params) const {
    return from_text(field, json, params);
  }

  absl::Status (*from_value)(std::string_view, const json::value&,
                             GenerationParams*);
  absl::Status (*from_text)(std::string_view, const JsonText&,
                            GenerationParams*);
};

struct ParamField {
  std::string_view name;   // "num_beams"
  std::string_view alias;  // another name for it, or ""
  std::string_view group;  // what it is about: "Sampling"
  std::string_view value;  // what it takes: "N"; "" if true or false
  std::string_view help;   // one line, with limits
  ParamReader read;
  // Valid range of an integer, independent of the request and the model, as "an
  // integer in [0, 64]"; "" if it is unspecified.
  std::string_view integers = "";
};

// Calls field.read; the error for a number beyond int64_t names the field's
// range.
absl::Status ReadParam(const ParamField& field, std::string_view name,
                       const JsonText& json, GenerationParams* params);

// The fields of a request beside those of `params`.
inline constexpr std::string_view kRequestFields[] = {"id",
                                                      "prompt",
                                                      "prompt_tokens",
                                                      "messages",
                                                      "template",
                                                      "params",
                                                      "continue_final_message",
                                                      "parse_special",
                                                      "split_sentences"};

// Groups stand together.
std::span<const ParamField> ParamFields();

// Finds a field by name or alias; null if there is none.
const ParamField* FindParamField(std::string_view name);

// Sets one field of `*params` by its name or alias.
// Errors: kInvalidArgument naming the field, and the value if it has the
// wrong type. Ranges are checked later, by ValidateParams.
absl::Status SetParam(std::string_view name, const json::value& value,
                      GenerationParams* params);

// Returns names and aliases.
std::vector<std::string_view> ParamNames();

// Returns the error for a name that FindParamField does not find.
absl::Status UnknownParam(std::string_view name);

}  // namespace espalier
