// ModelDescription: properties of a model that requests and their memory depend
// on, and the limits of its executor.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/alignment.h"
#include "base/feature_matrix.h"
#include "base/ids.h"

namespace espalier {

// Limits of an executor. All are unbounded by default; ModelExecutorOptions
// sets the bounds of the host. A request that exceeds one alone is refused when
// it is submitted (ValidateRequest; Scheduler::Submit). Requests never exceed
// one together, because the scheduler delays the next one.
struct StepLimits {
  // Tokens of a step, >= max_beams. With an encoder, decoder tokens; source
  // tokens count too, but a step may exceed the limit by one source, because a
  // source is read at once.
  int max_step_tokens = std::numeric_limits<int>::max();
  // Beams of all running requests, and rows of logits in a step.
  int max_beams = std::numeric_limits<int>::max();
  // Rows of a step without a selection: chunks of prompts, and tokens that
  // preempted groups feed again. >= 1.
  int max_prefill_rows = std::numeric_limits<int>::max();
  int max_eos_token_ids = std::numeric_limits<int>::max();  // per request
  // Different tokens that scored continuations may have at one row of logits.
  int max_scored_at_once = std::numeric_limits<int>::max();
  // Entries of TokenEdit lists (kernels/logits/score_processors.h) of all
  // running requests. A request needs one list for all its beams. If its edits
  // depend on histories, it also needs a list for each beam, and an entry for
  // each token of bad words. If its selections have allow lists, it needs one
  // list for each beam instead; where max_list_edits is below the vocabulary,
  // those of up to so many tokens besides.
  int64_t max_score_edits = std::numeric_limits<int64_t>::max();
  // Longer allow lists are masks, which take no edits.
  int64_t max_list_edits = std::numeric_limits<int64_t>::max();
  // Candidates in results (SelectionResult) of all running requests; at most
  // vocab_size for each row.
  int64_t max_candidates = std::numeric_limits<int64_t>::max();
  // Tokens reported beside candidates (SelectionParams::num_logprobs for each),
  // of all running requests.
  int64_t max_best_tokens = std::numeric_limits<int64_t>::max();
  // Scores of attention in the results of all running requests
  // (Alignment::attention_scores), 4 bytes each.
  int64_t max_attention_scores = int64_t{1} << 28;
  // Longest sequence that the executor's draft model can feed, by its context
  // and its pages (StepPlan::drafting). Longer ones have no drafts. 0: there is
  // no draft model.
  int max_drafted_length = 0;
};

// Encoder of an encoder-decoder model. It reads a request's prompt, the source
// of a translation or summary, or its features, such as speech, all at once;
// the decoder generates.
struct EncoderDescription {
  // With features, the positions of the encoder's output.
  int max_source_tokens = 0;
  // The shape of all sources, which are features. Absent: they are tokens.
  std::optional<FeatureShape> features = std::nullopt;
  // Tokens that the decoder begins with, decoder_start_token_id, before the
  // tokens that a request adds (request/decoder_prompt.h). Not empty.
  std::vector<TokenId> decoder_prompt = {};
  // A token, padding, that sources and the tokens that a request adds to
  // decoder_prompt must not contain: tokens after it would have other
  // positions than this model gives them.
  std::optional<TokenId> token_without_position = std::nullopt;
  // Set if steps report scores of cross-attention (Request::alignment).
  std::optional<AttentionShape> reported_attention = std::nullopt;
};

struct ModelDescription {
  int vocab_size = 0;  // tokens are [0, vocab_size)
  // Tokens of prompt and output together; with an encoder, tokens of the
  // decoder.
  int max_context = 0;
  std::vector<TokenId> eos_token_ids = {};
  int default_max_new_tokens = 256;
  // Key/value memory of the model: pages [0, num_pages) of page_size tokens
  // each.
  int num_pages = 0;
  int page_size = 16;
  // True: the model keeps all state of a sequence in its pages, so a row may
  // begin after tokens that another sequence fed into them, and a step may
  // verify drafts (docs/speculation.md). False: requests share no pages and do
  // not speculate.
  bool has_shareable_pages = false;
  // Set by the executor: true if it selects on the host. Only the host supports
  // sequence_bias of several tokens, scores that are renormalised after other
  // edits than bans, and processed log-probabilities. Other executors refuse
  // requests with these options (request/validate_host_selection.h).
  bool selects_on_host = true;
  // Set by the executor: true if the legal tokens of a constraint with tables
  // are masks of its own, which need neither lists nor score edits
  // (PlanSelection::places).
  bool has_token_masks = false;
  // Host memory for pages of preempted groups: slots of one page each. Plans
  // save pages to them and load pages from them (StepPlan::page_saves).
  // Requires shareable pages. 0: preempted groups are recomputed.
  int num_host_slots = 0;
  // Inputs of the choice between swapping and recomputation: the size of a
  // page, and the measured bandwidth from host memory into pages, in bytes per
  // second. 0: unknown.
  int64_t page_bytes = 0;
  double host_bandwidth = 0;
  StepLimits limits = {};  // set by the executor, if it has any
  // Absent for a decoder-only model, whose output continues the prompt.
  std::optional<EncoderDescription> encoder = std::nullopt;

  // Returns the largest number of tokens of a prompt.
  int max_prompt_tokens() const {
    return encoder ? encoder->max_source_tokens : max_context;
  }
};

// Bounds max_beams by max_step_tokens, because each beam feeds one token.
void BoundBeamsByTokens(StepLimits* limits);

// Validates a description. Rejects models that would crash an engine. Errors:
// kInvalidArgument naming the field and its value.
absl::Status CheckDescription(const ModelDescription& model);

}  // namespace espalier
