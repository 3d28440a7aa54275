// PreparedRequest: a request with all data that a group needs and that is slow
// to build. 100,000 allowed sequences take tens of milliseconds, and 4 KiB of
// stop strings take one. The submitting thread builds it once, and the strand,
// which all requests share, only moves it.
//
// Thread safety: a value; the data that it points to is constant.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "base/model_description.h"
#include "beam/continuation_walk.h"
#include "beam/pages/prefix_roots.h"
#include "beam/strategy/request_text.h"
#include "constrain/constraint.h"
#include "exec_request/encoder_input.h"
#include "exec_request/step_plan.h"
#include "request/request.h"
#include "speculate/drafter.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct PreparedRequest {
  // `from` has passed ValidateRequest with `model`, and CheckStops
  // (beam/strategy/stopping_criteria.h) with `tokenizer`.
  //   model       may be null if the model has no encoder
  //   constraint  params.constraint, compiled (beam/constraint_cache.h); null:
  //               it has none
  explicit PreparedRequest(
      Request from, std::shared_ptr<const Tokenizer> tokenizer = nullptr,
      const ModelDescription* model = nullptr,
      std::shared_ptr<const Constraint> constraint = nullptr);

  // Its params.allowed_sequences are moved to `constraint`. With an encoder the
  // prompt is moved to `source`, and the request has the decoder's prompt
  // (request/decoder_prompt.h) in its place.
  Request request;
  std::shared_ptr<const EncoderInput> source;  // null: no encoder
  PrefixRoots roots;
  std::shared_ptr<const Constraint> constraint;  // null: no restriction
  // Shared by the group and its stream; null without a tokenizer.
  std::shared_ptr<const RequestText> text;
  // Owns `constraint`.
  std::shared_ptr<const SelectionParams> selection_params;
  std::unique_ptr<Drafter> drafter;        // has the prompt; null: no drafts
  std::unique_ptr<ContinuationWalk> walk;  // null: it generates
  // Submission time by the engine's clock; deadline_ms counts from it.
  std::chrono::steady_clock::time_point submitted = {};
  // Returns the prompt that the caller gave.
  std::span<const TokenId> prompt() const {
    return source != nullptr ? source->tokens()
                             : std::span(request.prompt_tokens);
  }
  // With features the positions that the encoder makes of them.
  int num_prompt_tokens() const {
    return source != nullptr ? source->length()
                             : static_cast<int>(request.prompt_tokens.size());
  }
  int source_length() const { return source != nullptr ? source->length() : 0; }

  // Resource released when the group starts, or the request ends before that.
  std::shared_ptr<const void> while_waiting = nullptr;
};

// Returns the largest number of score edits of all rows of its group in one
// step, as StepLimits::max_score_edits counts them.
//   max_list_edits  as of StepLimits
int64_t WorstCaseEdits(
    const PreparedRequest& prepared, int vocab_size,
    int64_t max_list_edits = std::numeric_limits<int64_t>::max());

// Lowers the draft length of a beam search, to 0 if need be, until a result
// that decides several steps fits the limits of candidates and reported
// log-probabilities. So no request is refused because of its drafts.
void FitDrafts(const StepLimits& limits, int vocab_size,
               PreparedRequest* prepared);

// Returns the largest number of candidates of a step's result: over all rows
// for joint top-k, for each row if the strategy ranks them.
int64_t MaxCandidates(const PreparedRequest& prepared, int vocab_size);

}  // namespace espalier
