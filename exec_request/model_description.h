// ModelDescription: what a model is, as far as requests and their memory are
// concerned, and what its executor has room for.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace espalier {

// What an executor has room and time for at a time. None of it is bounded by
// default; ModelExecutorOptions has the bounds of the host. One request that is
// beyond it is refused when it is submitted (ValidateRequest;
// Scheduler::Submit); requests together never are beyond it, because the
// scheduler lets the next one wait.
struct StepLimits {
  // >= max_beams. With an encoder, of the decoder: those of sources are
  // counted, but as one is read at once, a step has up to that many beside.
  int max_step_tokens = std::numeric_limits<int>::max();
  // Of all that run; and so many rows of logits in a step.
  int max_beams = std::numeric_limits<int>::max();
  // Rows of a step that no selection is of: chunks of prompts, and what groups
  // feed again that were preempted. >= 1.
  int max_prefill_rows = std::numeric_limits<int>::max();
  int max_eos_token_ids = std::numeric_limits<int>::max();  // of each request
  // Different tokens that continuations may have at one place: of a row of
  // logits.
  int max_scored_at_once = std::numeric_limits<int>::max();
  // Entries of TokenEdit lists (kernels/logits/score_processors.h), of all that
  // run: one list for all beams of a request; where edits depend on histories
  // one for every beam besides, and an entry for every token of bad words.
  // Where selections list allowed tokens, one for every beam instead.
  int64_t max_score_edits = std::numeric_limits<int64_t>::max();
  // Candidates in answers (SelectionResult), of all that run; of no row more
  // than vocab_size.
  int64_t max_candidates = std::numeric_limits<int64_t>::max();
  // Tokens reported beside candidates (SelectionParams::num_logprobs of each),
  // of all that run.
  int64_t max_best_tokens = std::numeric_limits<int64_t>::max();
};

// Of an encoder-decoder model: its encoder reads a request's prompt, the source
// of a translation or summary, all at once, and its decoder generates.
struct EncoderDescription {
  int max_source_tokens = 0;
  // What the decoder begins with, decoder_start_token_id, ahead of what a
  // request adds (request/decoder_prompt.h). Not empty.
  std::vector<TokenId> decoder_prompt = {};
};

struct ModelDescription {
  int vocab_size = 0;  // tokens are [0, vocab_size)
  // Prompt and generated tokens together; with an encoder, those of the
  // decoder.
  int max_context = 0;
  std::vector<TokenId> eos_token_ids = {};
  int default_max_new_tokens = 256;
  // The key/value memory it brought along: pages [0, num_pages) of page_size
  // tokens each.
  int num_pages = 0;
  int page_size = 16;
  // Whether pages are all that a model keeps of a sequence, so that a row may
  // begin after tokens that another sequence fed into the pages it has. False:
  // no pages are shared between requests.
  bool has_shareable_pages = false;
  // Set by the executor: whether it selects on the host, which alone edits
  // scores by sequence_bias of several tokens, renormalises those of beams, and
  // reports processed log-probabilities. Elsewhere requests that ask for these
  // are refused.
  bool selects_on_host = true;
  // Set by the executor: whether selections may have drafts to verify, so that
  // requests may speculate (docs/speculation.md), which takes shareable pages;
  // whether those of beams may, too; and whether a draft model runs beside the
  // model. Where those of beams may not, their requests draft nothing.
  bool verifies_drafts = false;
  bool verifies_beam_drafts = false;
  bool has_draft_model = false;
  // With a draft model: whether a plan may have it draft what rows of the same
  // plan verify (DraftSequence::verified_by); and whether continuations may
  // have drafts (ContinuedDrafts).
  bool drafts_before_steps = false;
  bool drafts_ahead = false;
  // Whether drafts may be drawn while the plan that verifies them is on its way
  // (PlanSelection::pending_drafts); and whether rows may begin where
  // verification of such drafts ends that no one on the host has read
  // (PlanSelection::verified_before).
  bool verifies_pending_drafts = false;
  bool follows_pending_drafts = false;
  // With a draft model: the longest sequence that it can feed, by its context
  // and its pages. Of longer ones nothing is drafted.
  int max_draft_context = std::numeric_limits<int>::max();
  // Host memory for pages of groups that are preempted: slots of one page each,
  // which plans save to and load from (StepPlan::page_saves). Needs pages that
  // can be shared. 0: such groups are computed again.
  int num_host_slots = 0;
  // What decides between the two: the weight of a page, and bytes a second from
  // host memory into pages, as measured. 0: not known.
  int64_t page_bytes = 0;
  double host_bandwidth = 0;
  StepLimits limits = {};  // set by the executor, if it has any
  // Without one a prompt is the beginning of what is generated.
  std::optional<EncoderDescription> encoder = std::nullopt;

  // Tokens that a prompt may have.
  int max_prompt_tokens() const {
    return encoder ? encoder->max_source_tokens : max_context;
  }
};

// Bounds the beams of a model that bounds tokens alone: each feeds one.
void BoundBeamsByTokens(StepLimits* limits);

// What no engine can run with: that would end in a crash, not in refusals.
// Errors: kInvalidArgument naming the field and its value.
absl::Status CheckDescription(const ModelDescription& model);

}  // namespace espalier
