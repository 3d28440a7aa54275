#include "batcher/scheduler/admission_limits.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/cord.h"
#include "base/field_error.h"
#include "base/page_count.h"
#include "base/status.h"
#include "base/wording.h"
#include "beam/pages/group_pages.h"
#include "beam/strategy/selection_options.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

// Returns the request field that sets NumSequences.
std::string_view CountName(const GenerationParams& params) {
  return IsBeamSearch(params) ? "num_beams"
         : params.best_of     ? "best_of"
                              : "num_return_sequences";
}

// Describes the sizes that cause the need, under the names of the request
// format.
std::string DescribeSize(const PreparedRequest& prepared) {
  const GenerationParams& params = prepared.request.params;
  return MessageParts(Pluralize(prepared.num_prompt_tokens(), "prompt token"),
                      ", ", FieldName{CountName(params)}, " ",
                      NumSequences(params), ", `max_new_tokens` ",
                      *params.max_new_tokens, DependsOnPrompt{});
}

// Returns the cause of score edits and the verb. The legal tokens of a
// constraint, if there is one, are all of the edits.
std::string EditorsOf(const PreparedRequest& prepared) {
  if (prepared.constraint == nullptr) return "penalties and bans edit ";
  if (prepared.request.params.constraint) {
    return MessageParts(FieldName{"constraint"}, " edits ");
  }
  return MessageParts(FieldName{"allowed_sequences"}, " edit ");
}

// Suggests a change for a request that needs too many pages: to lower a field
// that is above its minimum, unless the prompt alone is too long.
std::string CapacityHint(const PreparedRequest& prepared,
                         const PagePool& pool) {
  const Request& request = prepared.request;
  const int64_t num_prompt_tokens = request.prompt_tokens.size();
  const bool many = NumSequences(request.params) > 1;
  const bool longer = *request.params.max_new_tokens > 1;
  if (NumPages(prepared.source_length(), pool.page_size()) +
              NumPages(num_prompt_tokens, pool.page_size()) >
          pool.num_pages() ||
      (!many && !longer)) {
    return "shorten the prompt";
  }
  const std::string count =
      many ? MessageParts(FieldName{CountName(request.params)}) : "";
  return MessageParts("lower ", count, many && longer ? " or " : "",
                      longer ? "`max_new_tokens`" : "");
}

int64_t NumAttentionScores(const Request& request) {
  if (request.alignment == nullptr) return 0;
  const AlignmentQuery& query = *request.alignment;
  return (std::ssize(request.prompt_tokens) - FirstLogprob(request)) *
         std::ssize(query.heads) * query.num_positions;
}

absl::Status TooFewPages(const PreparedRequest& prepared, int64_t needed,
                         const PagePool& pool) {
  absl::Status error = MakeFieldError(
      absl::StatusCode::kResourceExhausted,
      "the request can never fit: it needs ", Pluralize(needed, "page"), " of ",
      Pluralize(pool.page_size(), "token"), " at worst (",
      DescribeSize(prepared), "), there are ", pool.num_pages(), "; ",
      CapacityHint(prepared, pool));
  error.SetPayload(kTooFewPages, absl::Cord());
  return MarkPermanent(std::move(error));
}

}  // namespace

RequestNeeds& RequestNeeds::operator+=(const RequestNeeds& other) {
  num_pages += other.num_pages;
  num_sequences += other.num_sequences;
  num_widest = std::max(num_widest, other.num_widest);
  num_edits += other.num_edits;
  num_candidates += other.num_candidates;
  num_best += other.num_best;
  num_attention_scores += other.num_attention_scores;
  return *this;
}

AdmissionLimits::AdmissionLimits(const ModelDescription& model,
                                 const SchedulerOptions& options,
                                 const PagePool* pool)
    : limits_(model.limits),
      max_step_tokens_(
          std::min(options.max_step_tokens, limits_.max_step_tokens)),
      max_running_(options.max_running),
      vocab_size_(model.vocab_size),
      pool_(pool) {}

RequestNeeds AdmissionLimits::NeedsOf(const PreparedRequest& prepared) const {
  const Request& request = prepared.request;
  RequestNeeds needs = {
      .num_pages = GroupPages::WorstCase(request, pool_->page_size(),
                                         prepared.source_length()),
      .num_sequences = NumSequences(request.params),
      .num_widest = NumSequences(request.params),
      .num_edits =
          WorstCaseEdits(prepared, vocab_size_, limits_.max_list_edits),
      .num_candidates = MaxCandidates(prepared, vocab_size_),
      .num_attention_scores = NumAttentionScores(request)};
  needs.num_best = needs.num_candidates * request.params.logprobs.value_or(0);
  return needs;
}

void AdmissionLimits::FitDrafts(PreparedRequest* prepared) const {
  espalier::FitDrafts(limits_, vocab_size_, prepared);
}

absl::Status AdmissionLimits::CheckFits(const PreparedRequest& prepared,
                                        const RequestNeeds& needs) const {
  if (needs.num_pages > pool_->num_pages()) {
    return TooFewPages(prepared, needs.num_pages, *pool_);
  }
  const auto sizes = [&prepared] {
    return MessageParts(" in a step at worst (", DescribeSize(prepared),
                        "), there is room for ");
  };
  if (needs.num_edits > limits_.max_score_edits) {
    return MarkPermanent(MakeFieldError(
        absl::StatusCode::kResourceExhausted, "the request can never fit: its ",
        EditorsOf(prepared), needs.num_edits, " scores", sizes(),
        limits_.max_score_edits, OptionHint{" (", "max_score_edits", ")"}));
  }
  if (prepared.walk != nullptr &&
      prepared.walk->max_asked_at_once() > limits_.max_scored_at_once) {
    return MarkPermanent(
        ResourceExhausted("the request can never fit: its continuations have ",
                          prepared.walk->max_asked_at_once(),
                          " different tokens at one place, there is room for ",
                          limits_.max_scored_at_once, " in a step"));
  }
  if (needs.num_candidates > limits_.max_candidates) {
    return MarkPermanent(MakeFieldError(
        absl::StatusCode::kResourceExhausted,
        "the request can never fit: it ranks ", needs.num_candidates,
        " candidates", sizes(), limits_.max_candidates,
        OptionHint{" (", "max_candidates", ")"}));
  }
  if (needs.num_best > limits_.max_best_tokens) {
    return MarkPermanent(MakeFieldError(
        absl::StatusCode::kResourceExhausted,
        "the request can never fit: its `logprobs` report ", needs.num_best,
        " tokens beside its candidates", sizes(), limits_.max_best_tokens));
  }
  if (needs.num_attention_scores > limits_.max_attention_scores) {
    return MarkPermanent(MakeFieldError(
        absl::StatusCode::kResourceExhausted,
        "the request can never fit: its `alignment` has ",
        needs.num_attention_scores, " scores of attention (",
        prepared.request.alignment->heads.size(), " heads), there is room for ",
        limits_.max_attention_scores));
  }
  return absl::OkStatus();
}

int64_t AdmissionLimits::NumPagesToStart(
    const PreparedRequest& prepared) const {
  const Request& request = prepared.request;
  const int page_size = pool_->page_size();
  return std::min(
      NumPages(prepared.source_length(), page_size) +
          NumPages(std::ssize(request.prompt_tokens), page_size) +
          NumSlots(request.params),
      GroupPages::WorstCase(request, page_size, prepared.source_length()));
}

bool AdmissionLimits::CanAdmit(const RequestNeeds& next,
                               const RequestNeeds& running,
                               int num_running) const {
  if (num_running == 0) return true;
  if (num_running >= max_running_) return false;
  RequestNeeds total = running;
  total += next;
  // A quarter of a step, equal to the prompts' default share.
  const int64_t num_beside_widest = std::max(max_step_tokens_ / 4, 1);
  const int64_t max_sequences =
      std::max<int64_t>(max_step_tokens_, total.num_widest + num_beside_widest);
  return total.num_sequences <=
             std::min<int64_t>(max_sequences, limits_.max_beams) &&
         total.num_edits <= limits_.max_score_edits &&
         total.num_candidates <= limits_.max_candidates &&
         total.num_best <= limits_.max_best_tokens &&
         total.num_attention_scores <= limits_.max_attention_scores;
}

}  // namespace espalier
