// GenerationDefaults: the values that a model's maker gives for params that a
// request leaves open, as generation_config.json has them
// (request/json/generation_config.h reads it). In order of precedence:
//
//   what the request says
//   generation_config.json
//   the defaults of GenerationParams
//
// A default is taken where it means something beside the rest of the request:
// as long as the request with it passes ValidateParams. So temperature and
// top_p of a file are taken by requests that sample, as transformers does, and
// no default makes a good request a bad one. A request that gives num_beams
// above 1 and nothing of sampling asks for the search: do_sample of a file is
// not taken then, nor what needs it (LeftOutForSearch). But more beams or
// samples than a step has room for (StepLimits::max_beams) are taken: the
// model's maker meant them, and a request is told of them rather than run
// without. What only a search can tell is left: suppress_tokens and
// bad_words_ids may leave no token of those that a request allows. A request
// whose search is wrong all the same takes num_beams, so that its error is told
// of the beams that it would have.
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
#include "exec_request/model_description.h"
#include "request/generation_params.h"

namespace espalier {

// Fields by their names in generation_config.json, and values as JSON.
using NamedValues = std::vector<std::pair<std::string, std::string>>;

struct GenerationDefaults {
  // The file that they are of; empty if none was read.
  std::string path = {};
  // Those that differ from the defaults of GenerationParams, in the order of
  // DefaultNames; of `params` these count alone.
  NamedValues fields = {};
  GenerationParams params = {};
  // Prompt and generated tokens together; they count where the file has no
  // max_new_tokens, or min_new_tokens.
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> min_length = {};
  // As JSON, if the file has it: what the decoder of an encoder-decoder begins
  // with. It is the model's, and no request sets it.
  std::optional<std::string> decoder_start_token_id = {};
  // Fields that would change results and that there is nothing for here.
  NamedValues unsupported = {};

  // Of `path`, without its directories.
  std::string file_name() const { return path.substr(path.rfind('/') + 1); }
  // Whether no request can take any.
  bool empty() const { return fields.empty(); }
};

// The fields of generation_config.json that are taken, those first that others
// depend on, and the param of the request format that each sets.
struct DefaultName {
  std::string_view name;
  std::string_view param;
};
std::vector<DefaultName> DefaultNames();

// "FILE: FIELD VALUE is not supported", of all there are.
// REQUIRES: there are some.
std::string NameUnsupported(const GenerationDefaults& defaults);
// The same as a warning that they count for nothing; empty if there are none.
std::string UnsupportedWarning(const GenerationDefaults& defaults);

// The params that defaults are for.
std::vector<std::string_view> DefaultParams();
// Of these, those that differ from the defaults of GenerationParams: what a
// caller in C++ has given.
std::vector<std::string_view> DifferingParams(const GenerationParams& params);

// Moves those of `param` to the unsupported ones: "stop" of a model without a
// tokenizer.
void LeaveOut(std::string_view param, GenerationDefaults* defaults);
// The same of those that no executor but one that selects on the host can do,
// of beams or at all.
void LeaveOutHostSelection(const ModelDescription& model,
                           GenerationDefaults* defaults);

// The sampling defaults that a request leaves out because it asks for the
// search: it gives num_beams above 1 and says nothing of sampling.
NamedValues LeftOutForSearch(const GenerationDefaults& defaults,
                             std::span<const std::string_view> given,
                             const GenerationParams& params);
// "num_beams asks for the search: do_sample true and top_k 20 of FILE are left
// out; do_sample draws beams"; empty if none are. The two fields are called so.
std::string SearchNote(const GenerationDefaults& defaults,
                       std::span<const std::string_view> given,
                       const GenerationParams& params,
                       std::string_view num_beams, std::string_view do_sample);

// `model` as if its steps had room for any number of sequences: what a default
// is judged by.
ModelDescription WithAnyBeams(ModelDescription model);

// Whether every default is one that a request of `model` can have, if its steps
// have room for it, and its decoder begins as the file says.
// Errors: kInvalidArgument naming file, field and value.
absl::Status CheckDefaults(const GenerationDefaults& defaults,
                           const ModelDescription& model);

// The token that the defaults force to come first where params leave it open:
// as in transformers, which forces the second token of a context, only where
// one token stands before what is generated.
std::optional<TokenId> ForcedBosByDefault(const GenerationDefaults& defaults,
                                          const ModelDescription& model,
                                          int64_t num_prompt_tokens,
                                          const GenerationParams& params);

// Sets what `*params` leave open and returns which defaults that were; `given`
// are the params that were not left open, by their names in the request format.
NamedValues TakeDefaults(const GenerationDefaults& defaults,
                         std::span<const std::string_view> given,
                         const ModelDescription& model,
                         int64_t num_prompt_tokens, GenerationParams* params);

// The error of a request that has taken defaults, or OK; after it where those
// are from, that its message names: "...; num_beams is 4 by ORIGIN".
absl::Status NameDefaults(const absl::Status& error, const NamedValues& taken,
                          std::string_view origin);

}  // namespace espalier
