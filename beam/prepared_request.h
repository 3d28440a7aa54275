// PreparedRequest: a request as a group takes it, with what may take long to
// make of one: of a hundred thousand allowed sequences it is tens of
// milliseconds, of the 4 KiB that stop strings may have it is one. So it is
// made once, where the request comes from, and the strand, which all requests
// share, only moves it.
//
// Thread safety: a value; what it points to is constant.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "beam/continuation_walk.h"
#include "beam/pages/source_layout.h"
#include "beam/strategy/allowed_sequence_trie.h"
#include "beam/strategy/request_text.h"
#include "exec_request/model_description.h"
#include "exec_request/step_plan.h"
#include "request/request.h"
#include "speculate/drafter.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct PreparedRequest {
  // `from` has passed ValidateRequest with `model`, and CheckStops
  // (beam/strategy/stopping_criteria.h) with `tokenizer`.
  //   model  may be null where it has no encoder
  explicit PreparedRequest(Request from,
                           std::shared_ptr<const Tokenizer> tokenizer = nullptr,
                           const ModelDescription* model = nullptr);

  // Its params.allowed_sequences have become `allowed`, and are empty; a prompt
  // that is a source is laid out.
  Request request;
  SourceLayout source;
  std::shared_ptr<const AllowedSequenceTrie> allowed;  // null: all
  // Of its group and of its stream. Null: without a tokenizer.
  std::shared_ptr<const RequestText> text;
  // Keeps `allowed` alive.
  std::shared_ptr<const SelectionParams> selection_params;
  std::unique_ptr<Drafter> drafter;        // has the prompt; null: no drafts
  std::unique_ptr<ContinuationWalk> walk;  // null: it generates
  // When it was submitted, by its engine's clock: deadline_ms counts from then.
  std::chrono::steady_clock::time_point submitted = {};
  // Tokens of the prompt that those follow which are generated: a decoder's.
  std::span<const TokenId> context() const {
    return std::span(request.prompt_tokens).subspan(source.end);
  }
  // Those that the caller gave.
  int num_prompt_tokens() const;

  // Released when its group starts, or it ends before.
  std::shared_ptr<const void> while_waiting = nullptr;
};

// Edits of scores that the rows of its group have together at most, in any
// step, as StepLimits::max_score_edits counts them.
int64_t WorstCaseEdits(const PreparedRequest& prepared, int vocab_size);

// Has a search by beams draft fewer tokens, or none, where an answer that
// decides as many steps could have more candidates, or log-probabilities of
// more tokens, than there is room for: no request is refused for its drafts.
void FitDrafts(const StepLimits& limits, int vocab_size,
               PreparedRequest* prepared);

// Candidates that a step's answer has at most: of all rows together where they
// compete, of each row where the strategy ranks them.
int64_t MaxCandidates(const PreparedRequest& prepared, int vocab_size);

}  // namespace espalier
