// GenerationDefaults: the values that a model's maker gives for params that a
// request leaves open, as generation_config.json has them
// (request/json/generation_config.h reads it). ResolveDefaults
// (request/resolve_defaults.h) says which of them a request takes.
//
// Thread safety: a value; functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Fields by their names in generation_config.json, and values as JSON.
using NamedValues = std::vector<std::pair<std::string, std::string>>;

struct GenerationDefaults {
  // Path of the file; empty if none was read.
  std::string path = {};
  // Fields that differ from the defaults of GenerationParams, in the order of
  // DefaultNames. Only these fields of `params` are meaningful.
  NamedValues fields = {};
  GenerationParams params = {};
  // Prompt and generated tokens together. Used if the file has no
  // max_new_tokens, or no min_new_tokens.
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> min_length = {};
  // As JSON, if the file has it: the first token of the decoder of an
  // encoder-decoder. It is a property of the model; no request sets it.
  std::optional<std::string> decoder_start_token_id = {};
  // Fields that would change results and that espalier does not support.
  NamedValues unsupported = {};

  // Last component of `path`.
  std::string file_name() const { return path.substr(path.rfind('/') + 1); }
  // True if there is no default that a request can take.
  bool empty() const { return fields.empty(); }
};

// The supported fields of generation_config.json, dependencies first, and the
// param of the request format that each sets.
struct DefaultName {
  std::string_view name;
  std::string_view param;
};
std::vector<DefaultName> DefaultNames();

// Returns "FILE: FIELD VALUE is not supported", listing all unsupported fields.
// REQUIRES: there is at least one.
std::string NameUnsupported(const GenerationDefaults& defaults);
// Returns that message as a warning that they are ignored; empty if all fields
// are supported.
std::string UnsupportedWarning(const GenerationDefaults& defaults);

// Returns the ids that end the output of requests which leave that open.
std::vector<TokenId> EndIdsByDefault(const GenerationDefaults& defaults,
                                     const ModelDescription& model);

// Returns the params that can have a default.
std::vector<std::string_view> DefaultParams();
// Returns the params with defaults whose values differ from those of
// GenerationParams: the ones that a C++ caller has set.
std::vector<std::string_view> DifferingParams(const GenerationParams& params);

// Returns the param that a field of DefaultNames sets.
std::string_view ParamOfDefault(std::string_view name);

// The context that a prompt takes and leaves.
struct PromptRoom {
  int64_t num_tokens = 0;
  int64_t num_left = 0;  // >= 1
};
// Sets the param of the field `name`, which `defaults` have.
void SetDefault(std::string_view name, const GenerationDefaults& defaults,
                const PromptRoom& room, GenerationParams* params);

// Returns the max_new_tokens that a request would take; nullopt if the defaults
// have none.
std::optional<int64_t> MaxNewTokensOf(const GenerationDefaults& defaults,
                                      const PromptRoom& room);

// True if a request gives num_beams above 1 and no sampling param: it is a beam
// search, and takes no default of sampling.
bool AsksForSearch(std::span<const std::string_view> given,
                   const GenerationParams& params);

// Moves the defaults of `param` to the unsupported ones, such as "stop" for a
// model without a tokenizer.
void LeaveOut(std::string_view param, GenerationDefaults* defaults);
// Moves defaults that require selection on the host to the unsupported ones, if
// the model's executor selects on the device.
void LeaveOutHostSelection(const ModelDescription& model,
                           GenerationDefaults* defaults);

// Returns the sampling defaults that a request omits because it gives num_beams
// above 1 and no sampling param.
NamedValues LeftOutForSearch(const GenerationDefaults& defaults,
                             std::span<const std::string_view> given,
                             const GenerationParams& params);
// Returns "num_beams asks for the search: do_sample true and top_k 20 of FILE
// are left out; do_sample draws beams", with these names of the two fields;
// empty if no defaults are left out.
std::string SearchNote(const GenerationDefaults& defaults,
                       std::span<const std::string_view> given,
                       const GenerationParams& params,
                       std::string_view num_beams, std::string_view do_sample);

// Returns `model` with no limit on the sequences of a step. Defaults are
// checked against it.
ModelDescription WithAnyBeams(ModelDescription model);

// Checks that requests of `model` can take every default, regardless of the
// room in its steps, and that its decoder begins as the file says.
// Errors: kInvalidArgument naming file, field and value.
absl::Status CheckDefaults(const GenerationDefaults& defaults,
                           const ModelDescription& model);

// Returns the token that the defaults force to come first if params leave it
// open. As in transformers, which forces the second token of a context, this
// applies only if exactly one token precedes the generated ones.
std::optional<TokenId> ForcedBosByDefault(const GenerationDefaults& defaults,
                                          const ModelDescription& model,
                                          int64_t num_prompt_tokens,
                                          const GenerationParams& params);

// Appends to the error of a request the origin of each default that its message
// names: "...; num_beams is 4 by ORIGIN". OK stays OK.
absl::Status NameDefaults(const absl::Status& error, const NamedValues& taken,
                          std::string_view origin);

}  // namespace espalier
