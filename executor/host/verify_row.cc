#include "executor/host/verify_row.h"

#include <cstddef>
#include <cstdint>
#include <deque>

#include "executor/host/logits_place.h"
#include "kernels/logits/edited_logits.h"
#include "kernels/verify/verify.h"

namespace espalier {
namespace {

// The rows of logits of one row of a selection, with the edits of each.
class LogitsRows {
 public:
  LogitsRows(const PlanSelection& selection, int row, int first_logits,
             const ScoreEdits& edits, int vocab_size)
      : selection_(selection),
        draws_(*selection.as_draws()),
        row_(row),
        first_(first_logits),
        vocab_size_(vocab_size) {
    const std::vector<TokenId>& drafts = draws_.drafts.tokens[row];
    std::vector<TokenId> history;
    const bool has_history = !selection.histories.empty();
    if (has_history) history = selection.histories[row];
    storage_.resize(drafts.size() + 1);
    for (size_t i = 0; i <= drafts.size(); ++i) {
      ScoreEdits::Row asked = {.tail = history,
                               .num_generated = NumGenerated(i),
                               .vocab_size = vocab_size};
      if (!selection.allowed.empty()) {
        asked.allowed = &selection.allowed[first_ - selection.first_logits + i];
      }
      edits_.push_back(edits.OfRow(asked, &storage_[i]));
      if (!draws_.drafts.logits.empty()) {
        // The draft model sampled without the list of allowed tokens.
        asked.allowed = nullptr;
        draft_edits_.push_back(
            edits.OfRow(asked, &draft_storage_.emplace_back()));
      }
      if (has_history && i < drafts.size()) history.push_back(drafts[i]);
    }
  }

  // Returns the rows of the target model. If log-probabilities are those after
  // edits, the rows have them already.
  std::vector<VerifyRow> Target(std::span<const float> logits) {
    const std::span<const float> rows = logits.subspan(Offset(first_));
    if (!RenormalizesDraws(selection_)) return RowsOf(rows, edits_);
    edited_.resize(Offset(static_cast<int>(edits_.size())));
    for (size_t i = 0; i < edits_.size(); ++i) {
      const size_t begin = Offset(static_cast<int>(i));
      WriteEditedLogits(rows.subspan(begin, vocab_size_),
                        {.repetition_penalty =
                             selection_.params->processors.repetition_penalty,
                         .edits = edits_[i].edits,
                         .is_allow_list = edits_[i].is_allow_list},
                        std::span(edited_).subspan(begin, vocab_size_));
    }
    return RowsOf(edited_, std::vector<ScoreEdits::View>(edits_.size()));
  }

  // Returns the rows of the draft model; empty if drafts have no logits.
  std::vector<VerifyRow> Draft() const {
    if (draws_.drafts.logits.empty()) return {};
    return RowsOf(draws_.drafts.logits[row_].values(),
                  std::span(draft_edits_).first(edits_.size() - 1));
  }

 private:
  int NumGenerated(size_t i) const {
    return selection_.num_generated_of(row_) + static_cast<int>(i);
  }
  size_t Offset(int row) const { return size_t{1} * row * vocab_size_; }

  std::vector<VerifyRow> RowsOf(std::span<const float> logits,
                                std::span<const ScoreEdits::View> edits) const {
    const SelectionParams& params = *selection_.params;
    std::vector<VerifyRow> rows;
    for (size_t i = 0; i < edits.size(); ++i) {
      rows.push_back(
          {.logits = logits.subspan(Offset(static_cast<int>(i)), vocab_size_),
           .options = {
               .params = params.sampling,
               .sample = static_cast<uint32_t>(draws_.samples[row_]),
               .position = static_cast<uint32_t>(NumGenerated(i)),
               .repetition_penalty = params.processors.repetition_penalty,
               .edits = edits[i].edits,
               .is_allow_list = edits[i].is_allow_list}});
    }
    return rows;
  }

  const PlanSelection& selection_;
  const DrawSelection& draws_;
  const int row_;
  const int first_;  // row of logits
  const int vocab_size_;
  std::vector<std::vector<TokenEdit>> storage_;
  std::vector<ScoreEdits::View> edits_;
  std::vector<float> edited_;  // [edits_, vocab_size], or empty
  // One entry per drafted token and one more; empty if drafts have no logits.
  std::deque<std::vector<TokenEdit>> draft_storage_;
  std::vector<ScoreEdits::View> draft_edits_;
};

}  // namespace

std::vector<Candidate> VerifyRowOf(const PlanSelection& selection, int row,
                                   int first_logits, const ScoreEdits& edits,
                                   std::span<const float> logits,
                                   int vocab_size) {
  LogitsRows rows(selection, row, first_logits, edits, vocab_size);
  const std::vector<VerifyRow> target = rows.Target(logits);
  const std::vector<VerifyRow> draft = rows.Draft();
  const VerifiedTokens verified =
      VerifyDrafts({.mode = selection.params->verify_mode,
                    .drafts = selection.drafts()[row],
                    .target_rows = target,
                    .draft_rows = draft});
  std::vector<Candidate> run;
  float sum = selection.cum_log_probs[row];
  for (int i = 0; i < verified.length; ++i) {
    sum += verified.log_probs[i];
    run.push_back({row, verified.tokens[i], sum});
  }
  return run;
}

}  // namespace espalier
