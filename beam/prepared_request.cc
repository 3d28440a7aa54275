#include "beam/prepared_request.h"

#include <algorithm>
#include <utility>

#include "beam/drafts/group_drafts.h"
#include "beam/strategy/allowed_sequences.h"
#include "beam/strategy/make_strategy.h"
#include "beam/strategy/selection_options.h"
#include "request/decoder_prompt.h"
#include "request/text_begin.h"
#include "speculate/constraint_drafter.h"

namespace espalier {
namespace {

// Returns the largest number of tokens that may follow all sequences together.
// Beams of one search are different sequences; samples, and beams of different
// groups, may be equal.
int64_t WorstCaseLegal(const GenerationParams& params,
                       const Constraint& constraint, int vocab_size) {
  const int64_t num_slots = NumSlots(params);
  const int64_t num_searches =
      IsBeamSearch(params) ? params.num_beam_groups : num_slots;
  const int64_t num_beams = (num_slots + num_searches - 1) / num_searches;
  return std::min(num_searches * constraint.MaxLegal(num_beams),
                  num_slots * vocab_size);
}

// True if steps of its beams may have drafts, and these can be worth their cost
// (BeamStrategy::supports_drafts).
bool MayDraftForBeams(const PreparedRequest& prepared) {
  const GenerationParams& params = prepared.request.params;
  return params.speculate.has_value() &&
         params.speculate->method != SpeculationMethod::kNone &&
         KindOf(params) == SelectionKind::kBeams &&
         prepared.constraint == nullptr && params.stop.empty() &&
         GroupDrafts::MayPay(params);
}

// True if what its constraint forces is drafted, if it has one. If acceptance
// depends on the logits of a draft model, it drafts all tokens itself.
bool DraftsForced(const GenerationParams& params) {
  if (IsBeamSearch(params)) return false;
  switch (params.speculate->method) {
    case SpeculationMethod::kNgram:
    case SpeculationMethod::kSuffix:
    case SpeculationMethod::kConstraint:
      return true;
    case SpeculationMethod::kDraft:
      return !GroupDrafts::DrawsFromModel(params);
    case SpeculationMethod::kNone:
      return false;
  }
  return false;
}

// Returns the largest number of steps that one result decides, with drafts.
int64_t NumStepsOfAnswer(const PreparedRequest& prepared) {
  if (!MayDraftForBeams(prepared)) return 1;
  return 1 + prepared.request.params.speculate->num_tokens;
}

// Returns the largest number of candidates in one of these steps.
int64_t MaxCandidatesOfStep(const PreparedRequest& prepared, int vocab_size) {
  const GenerationParams& params = prepared.request.params;
  return std::min(MaxNumCandidates(params, prepared.constraint.get()),
                  NumSequences(params) * int64_t{vocab_size});
}

// Replaces the prompt of a request for an encoder by the decoder's, and returns
// it. Returns null without an encoder.
std::shared_ptr<const EncoderInput> TakeSource(const ModelDescription* model,
                                               Request* request) {
  if (model == nullptr || !model->encoder) return nullptr;
  auto source = request->features != nullptr
                    ? std::make_shared<const EncoderInput>(
                          request->features, model->encoder->max_source_tokens)
                    : std::make_shared<const EncoderInput>(
                          std::move(request->prompt_tokens));
  request->prompt_tokens = DecoderPromptOf(*model, request->params);
  return source;
}

}  // namespace

PreparedRequest::PreparedRequest(Request from,
                                 std::shared_ptr<const Tokenizer> tokenizer,
                                 const ModelDescription* model,
                                 std::shared_ptr<const Constraint> compiled)
    : request(std::move(from)),
      source(TakeSource(model, &request)),
      roots(source.get(), request.params.cache_salt),
      constraint(compiled != nullptr ? std::move(compiled)
                                     : AllowedSequencesOf(request.params)),
      text(RequestText::Make(request.params, tokenizer,
                             source != nullptr
                                 ? AfterStart(*model, request.prompt_tokens)
                                 : ContinuedTokens(request))),
      selection_params(
          MakeSelectionParams(request.params, request.prompt_tokens, constraint,
                              model != nullptr && model->has_token_masks)) {
  if (OnlyScores(request)) {
    request.params.speculate.reset();
    walk = std::make_unique<ContinuationWalk>(request.continuations);
  }
  if (request.params.speculate.has_value()) {
    drafter = MakeDrafter(*request.params.speculate);
    if (drafter != nullptr) {
      // The output may repeat the source.
      if (source != nullptr) drafter->Append(source->tokens());
      drafter->Append(request.prompt_tokens);
    }
    if (constraint != nullptr && DraftsForced(request.params)) {
      drafter = std::make_unique<ConstraintDrafter>(
          constraint, std::move(tokenizer),
          SaturateToInt(request.params.max_new_tokens.value()),
          std::move(drafter));
    }
  }
  // The first list, which may take long, is not left to the strand.
  if (constraint != nullptr) {
    constraint->LegalTokens(constraint->start(),
                            request.params.max_new_tokens.value());
  }
  // Empty, not unset, because errors name the given option.
  if (request.params.allowed_sequences) {
    request.params.allowed_sequences.emplace();
  }
}

namespace {

// Edits of rows that no list restricts.
int64_t WorstCaseOfProcessors(const PreparedRequest& prepared, int vocab_size) {
  const Request& request = prepared.request;
  const int64_t num_tokens = std::ssize(request.prompt_tokens) +
                             request.params.max_new_tokens.value() - 1;
  const ScoreProcessors& processors = prepared.selection_params->processors;
  int64_t num_edits = MaxEdits(processors, 0, vocab_size);
  if (!processors.needs_history()) return num_edits;
  num_edits += processors.num_bad_word_tokens();
  return num_edits + NumSlots(request.params) *
                         MaxEdits(processors, num_tokens, vocab_size);
}

}  // namespace

// A row restricted by a list needs one edit for each allowed token, whatever
// its processors are, and none for other tokens. Where long lists are masks,
// others of its rows may need those of processors.
int64_t WorstCaseEdits(const PreparedRequest& prepared, int vocab_size,
                       int64_t max_list_edits) {
  const GenerationParams& params = prepared.request.params;
  const bool has_lists = prepared.constraint != nullptr &&
                         !prepared.selection_params->constraint.has_value();
  if (!has_lists) return WorstCaseOfProcessors(prepared, vocab_size);
  const int64_t num_legal =
      WorstCaseLegal(params, *prepared.constraint, vocab_size);
  if (max_list_edits >= vocab_size) return num_legal;
  return std::min(num_legal, NumSlots(params) * max_list_edits) +
         WorstCaseOfProcessors(prepared, vocab_size);
}

void FitDrafts(const StepLimits& limits, int vocab_size,
               PreparedRequest* prepared) {
  if (!MayDraftForBeams(*prepared)) return;
  GenerationParams& params = prepared->request.params;
  const int64_t num_candidates = MaxCandidatesOfStep(*prepared, vocab_size);
  int64_t num_steps = limits.max_candidates / num_candidates;
  if (params.logprobs.value_or(0) > 0) {
    num_steps = std::min(num_steps, limits.max_best_tokens /
                                        (num_candidates * *params.logprobs));
  }
  if (num_steps > params.speculate->num_tokens) return;
  params.speculate->num_tokens = std::max<int64_t>(1, num_steps - 1);
  if (num_steps > 1) return;
  params.speculate.reset();
  prepared->drafter.reset();
}

int64_t MaxCandidates(const PreparedRequest& prepared, int vocab_size) {
  const GenerationParams& params = prepared.request.params;
  const int64_t num_sequences = NumSequences(params);
  switch (KindOf(params)) {
    case SelectionKind::kDraws:
      return num_sequences;
    case SelectionKind::kBeams:
      return NumStepsOfAnswer(prepared) *
             MaxCandidatesOfStep(prepared, vocab_size);
    case SelectionKind::kRows:
      return num_sequences *
             std::min<int64_t>(
                 MaxNumCandidates(params, prepared.constraint.get()),
                 vocab_size);
  }
  return 0;
}

}  // namespace espalier
