// ResolveDefaults: the params of a request that leaves fields open. A field has
// the value of the first of these levels that sets it:
//
//   1. the request
//   2. the server's defaults: flags of its command line, then its file
//   3. the model's defaults: generation_config.json
//   4. the defaults of the API that the request came by (ApiDefaults)
//   5. those of GenerationParams
//
// A default is taken if the request with it still passes ValidateParams, with
// the max_new_tokens that it will have, so that no default invalidates a valid
// request: requests that sample take
// temperature and top_p, as in transformers. Defaults that others depend on
// come first, lists last. The exceptions:
//
//  * Beams or samples above StepLimits::max_beams are taken: the request gets
//    an error instead of another search.
//  * Conflicts that appear only during the search are not detected:
//    suppress_tokens and bad_words_ids may ban every token that a request
//    allows.
//  * A request whose search is invalid anyway takes num_beams, so that its
//    error describes the beams that it would have had.
//  * A request that gives num_beams above 1 and no sampling param is a beam
//    search: it takes neither do_sample of the model nor the params that need
//    it (LeftOutForSearch).
//  * allowed_sequences determine how outputs begin, end and how long they are,
//    and a constraint how they begin and end: such defaults are not taken.
//  * forced_bos_token_id of the model is taken after a context of one token
//    (ForcedBosByDefault); decoder_prompt gives decoder_prompt_tokens.
//  * include_stop of a default is dropped where no level has stops, and
//    speculate of a default where the search excludes it. A request's own
//    speculate excludes defaults that make a search which cannot speculate
//    (SpeculationNote).
//  * max_new_tokens and max_length of the model are lowered to the room of the
//    context.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/model_description.h"
#include "request/generation_defaults.h"
#include "request/generation_params.h"
#include "request/request.h"

namespace espalier {

class Tokenizer;

// The defaults of a server: names of params in the request format, dependencies
// first, and values as JSON; the same values as params.
struct ServerValues {
  NamedValues values = {};
  GenerationParams params = {};
};

// The defaults of OpenAI's API, where a search that is left open samples. A
// request or server that selects beams (num_beams above 1, stochastic) gets
// them. One with a sampling param (do_sample, best_of, a temperature above 0, a
// filter), or a request that refuses beams (num_beams 1), gets samples. Without
// any of these the request has the kind of the server's defaults, where
// num_beams 1 overrides the model's beams; else of the model's; else it
// samples. Beams by default are at least as many as the request's
// num_return_sequences.
struct ApiDefaults {
  // Default of max_new_tokens; lower if the context, all pages or `max_tokens`
  // leave less room.
  int64_t max_new_tokens = std::numeric_limits<int64_t>::max();
  // The model's defaults of max_new_tokens are lowered to it.
  int64_t max_tokens = std::numeric_limits<int64_t>::max();
  // include_stop of a request without stops is dropped instead of refused.
  bool drops_include_stop = true;
};

// True if these select samples, or leave the search open.
bool SamplesUnlessSelected(const ServerValues& server);

struct DefaultSources {
  // Null where there are none. Without an API the request format's own rules
  // hold, and what is left open is GenerationParams'.
  const ServerValues* server = nullptr;
  const GenerationDefaults* model = nullptr;
  const ApiDefaults* api = nullptr;
};

struct ResolvedParams {
  GenerationParams params;
  // Defaults of the server and the model that were taken: the name that the
  // level has for the field, and the value as JSON. With an API also
  // max_new_tokens where pages or max_tokens lower it.
  NamedValues defaults = {};
};

// `given` lists the params that the request sets, by their names in the request
// format. The result is valid if the request is.
ResolvedParams ResolveDefaults(const DefaultSources& sources,
                               GenerationParams params,
                               std::span<const std::string_view> given,
                               const ModelDescription& model,
                               int64_t num_prompt_tokens);

// Returns a note that names the defaults of the search that a request leaves
// out because of its own `speculate`, such as "num_beams 4 is left out, a
// default that does not go with speculate ngram"; empty if there are none.
// Arguments as for ResolveDefaults.
std::string SpeculationNote(const DefaultSources& sources,
                            const GenerationParams& params,
                            std::span<const std::string_view> given,
                            const ModelDescription& model,
                            int64_t num_prompt_tokens);

// Makes a request what an engine runs: encodes its decoder prompt
// (ResolveDecoderPrompt), appends it to the prompt (AppendDecoderPrompt) and
// takes the model's defaults, which it returns. `given` as above; unset: the
// params that differ from GenerationParams'.
// Errors: as ResolveDecoderPrompt and AppendDecoderPrompt.
absl::StatusOr<NamedValues> CompleteRequest(
    const GenerationDefaults& defaults,
    std::optional<std::span<const std::string_view>> given,
    const Tokenizer* tokenizer, const ModelDescription& model,
    Request* request);

// Returns the largest number of new tokens whose worst case fits into all pages
// with no other request running; 0 if not even one does.
int64_t RoomInPages(const ModelDescription& model, int64_t num_prompt_tokens,
                    const GenerationParams& params);

}  // namespace espalier
