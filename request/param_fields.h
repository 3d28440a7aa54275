// The fields of `params` in the request format: the one list that parsing, the
// command line's options, their help and defaults are made from. Lists of
// fields elsewhere are checked against it (tests/batcher/every_param_test.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "request/generation_params.h"

namespace espalier {

// The member of GenerationParams that a field sets.
struct ParamMember {
  // Reads a value into its place, from its text.
  absl::Status Read(std::string_view field, const json::value& value,
                    GenerationParams* params) const;

  absl::Status (*read)(std::string_view field, const JsonText& json,
                       GenerationParams* params);
  void (*copy)(const GenerationParams& from, GenerationParams* to);
  bool (*equal)(const GenerationParams& a, const GenerationParams& b);
  // Returns a number as Concat writes it; empty for other types.
  std::string (*show)(const GenerationParams& params);
  // Returns a number, or true or false; null for other types.
  json::value (*to_json)(const GenerationParams& params);
};

// Properties of fields, which several parts of the program depend on.
enum ParamTraits : unsigned {
  kNoTraits = 0,
  // Drops tokens before a draw. It is off at its default, and needs do_sample
  // or stochastic unless it is off.
  kFilter = 1,
  // Acts on draws alone, as filters do.
  kSampledOnly = 2,
  kOnPage = 4,  // a field of the form of the served page
  // In the description of a request in traces; with kSampledOnly,
  // trace/trace.cc adds it from this table.
  kTraced = 8,
  // A list or a text of any length.
  kLarge = 16,
  // Ranks beams, so it changes nothing with one.
  kBeamsOnly = 32,
};

struct ParamField {
  std::string_view name;   // "num_beams"
  std::string_view alias;  // another name for it, or ""
  std::string_view group;  // what it is about: "Sampling"
  std::string_view value;  // what it takes: "N"; "" if true or false
  std::string_view help;   // one line, with limits
  ParamMember member;
  // Valid range of an integer, independent of the request and the model, as "an
  // integer in [0, 64]"; "" if it is unspecified.
  std::string_view integers = "";
  unsigned traits = kNoTraits;  // ParamTraits, combined by |

  bool Is(ParamTraits trait) const { return (traits & trait) != 0; }
  bool IsDefault(const GenerationParams& params) const {
    return member.equal(params, GenerationParams());
  }
};

// A param that a caller gives.
struct GivenParam {
  std::string_view param;  // in the request format: "max_new_tokens"
  std::string_view name;   // as the caller calls it: "max_tokens"
};

// Calls field.member.Read; the error for a number beyond int64_t names the
// field's range.
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

// REQUIRES: there is such a field.
const ParamField& ParamNamed(std::string_view name);

// True if a filter of draws is on.
bool HasFilters(const GenerationParams& params);

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
