#include "executor/host/select_all.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/allocating_loop.h"
#include "base/check.h"
#include "executor/beam_replay.h"
#include "executor/best_of_selection.h"
#include "executor/candidate_filter.h"
#include "executor/host/logits_place.h"
#include "executor/host/report_logprobs.h"
#include "executor/host/verify_row.h"
#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/sample/sample.h"
#include "kernels/select/best_candidates.h"
#include "kernels/select/merge_candidates.h"
#include "kernels/select/select.h"

namespace espalier {
namespace {

// Maximum draws per work item. A thread reads the row once for all of them, so
// that the read is cheap compared with the draws.
constexpr int kDrawsAtOnce = 64;

// Work item of one thread: a row, or some draws from one row.
struct WorkItem {
  int selection = 0;  // index in the plan
  int begin = 0;      // rank of the row, node, or index of the first draw
  int count = 1;      // number of draws
};

bool Draws(const PlanSelection& selection) {
  return selection.kind() == SelectionKind::kDraws;
}

RowOptions OptionsOfRow(const PlanSelection& selection,
                        const ScoreEdits::View& edits) {
  const SelectionParams& params = *selection.params;
  return {.domain = params.domain,
          .num_candidates = selection.num_candidates(),
          .repetition_penalty = params.processors.repetition_penalty,
          .edits = edits.edits,
          .is_allow_list = edits.is_allow_list,
          .renormalizes = params.processors.renormalizes};
}

// Returns the best tokens of a node's row of logits, after the edits of its
// path.
//   logits  [plan.num_logits, vocab_size]
std::vector<TokenScore> SelectNode(const PlanSelection& selection,
                                   const ScoreEdits& all, const DraftTree& tree,
                                   int node, std::span<const float> logits,
                                   int vocab_size) {
  std::vector<TokenEdit> storage;
  const size_t logits_row = selection.first_logits + tree.logits_row(node);
  const RowView row =
      RowAt(selection, all,
            {.row = tree.row(node),
             .depth = tree.depth(node),
             .logits_row = tree.logits_row(node)},
            logits.subspan(logits_row * vocab_size, vocab_size), &storage);
  return SelectRow(row.logits, OptionsOfRow(selection, row.edits));
}

// The selection of one group, on several threads.
class GroupWork {
 public:
  explicit GroupWork(const PlanSelection* selection)
      : selection_(*selection),
        params_(*selection->params),
        edits_(EditsOf(params_)) {
    switch (selection_.kind()) {
      case SelectionKind::kBeams:
        if (selection_.has_paths()) {
          replay_ = std::make_unique<BeamReplay>(selection);
        } else if (selection_.num_rows > 0) {
          best_ = BestOfSelection(selection_);
        }
        return;
      case SelectionKind::kRows:
        contenders_ = std::make_unique<CandidateFilter>(selection_);
        return;
      case SelectionKind::kDraws:
        if (has_drafts()) {
          runs_.resize(selection_.num_rows);
          first_logits_ = selection_.FirstLogits();
        } else {
          drawn_.resize(samples().size());
        }
    }
  }

  //   s  index of the selection in the plan
  void AddItems(int s, std::vector<WorkItem>* items) const {
    const bool draws = Draws(selection_);
    int end = selection_.num_rows;
    if (draws) end = static_cast<int>(samples().size());
    if (replay_ != nullptr) end = replay_->tree().num_nodes();
    const bool one_row = selection_.num_rows == 1 && !has_drafts();
    const int step = draws && one_row ? kDrawsAtOnce : 1;
    for (int i = 0; i < end; i += step) {
      items->push_back({s, i, std::min(step, end - i)});
    }
  }

  //   logits  [plan.num_logits, vocab_size]  of the plan
  void Run(const WorkItem& item, std::span<const float> logits,
           int vocab_size) {
    if (replay_ != nullptr) {
      return replay_->SetBest(item.begin,
                              SelectNode(selection_, *edits_, replay_->tree(),
                                         item.begin, logits, vocab_size));
    }
    if (has_drafts()) {
      runs_[item.begin] =
          VerifyRowOf(selection_, item.begin, first_logits_[item.begin],
                      *edits_, logits, vocab_size);
      return;
    }
    const bool one_row = Draws(selection_) && selection_.num_rows == 1;
    const int row = one_row ? 0 : item.begin;
    const size_t logits_row = selection_.first_logits + row;
    std::vector<TokenEdit> storage;
    const auto [scores, edits] =
        RowAt(selection_, *edits_, {.row = row, .logits_row = row},
              logits.subspan(logits_row * vocab_size, vocab_size), &storage);
    if (Draws(selection_)) return DrawFrom(row, item, scores, edits);
    if (best_ != nullptr) return SelectBest(row, scores, edits);
    contenders_->Add(row, OfRow(row, scores, edits));
  }

  // Moves the result out. REQUIRES: all items have run.
  void Take(SelectionResult* result) {
    const auto assign = [&](const std::vector<Candidate>& candidates) {
      result->candidates.assign(candidates.begin(), candidates.end());
    };
    if (replay_ != nullptr) {
      replay_->Take(result);
    } else if (best_ != nullptr) {
      assign(best_->Take());
    } else if (contenders_ != nullptr) {
      assign(contenders_->Take());
    } else {
      result->candidates = std::move(drawn_);
    }
    for (const std::vector<Candidate>& run : runs_) {
      result->candidates.append(run);
      result->num_tokens.push_back(static_cast<int>(run.size()));
    }
  }

 private:
  bool has_drafts() const { return !selection_.drafts().empty(); }
  // REQUIRES: it draws.
  std::span<const int> samples() const {
    return selection_.as_draws()->samples;
  }
  DrawOptions OptionsOfDraw(int row, int sample,
                            const ScoreEdits::View& edits) const {
    return {.params = params_.sampling,
            .sample = static_cast<uint32_t>(sample),
            .position = static_cast<uint32_t>(selection_.num_generated_of(row)),
            .repetition_penalty = params_.processors.repetition_penalty,
            .edits = edits.edits,
            .is_allow_list = edits.is_allow_list};
  }

  void DrawFrom(int row, const WorkItem& item, std::span<const float> scores,
                const ScoreEdits::View& edits) {
    const std::vector<Draw> draws =
        DrawSamples(scores, OptionsOfDraw(row, 0, edits),
                    samples().subspan(item.begin, item.count));
    for (int i = 0; i < item.count; ++i) {
      drawn_[item.begin + i] = {
          row, draws[i].token,
          selection_.cum_log_probs[row] + draws[i].log_prob};
    }
  }

  void SelectBest(int row, std::span<const float> scores,
                  const ScoreEdits::View& edits) {
    RowOptions options = OptionsOfRow(selection_, edits);
    options.cum_log_prob = selection_.cum_log_probs[row];
    options.min_sum = best_->min_sum();
    best_->Add(row, SelectRow(scores, options), options.cum_log_prob);
  }

  // Returns the continuations of one row, best first: by cumulative score, or
  // by the score with noise for Gumbel top-k.
  std::vector<Candidate> OfRow(int row, std::span<const float> scores,
                               const ScoreEdits::View& edits) const {
    const float cum_log_prob = selection_.cum_log_probs[row];
    std::vector<Candidate> candidates;
    const RowSelection& choice = *selection_.as_rows();
    if (!choice.gumbel_top_k) {
      const std::vector<TokenScore> chosen =
          SelectRow(scores, OptionsOfRow(selection_, edits));
      candidates = MergeCandidates({&chosen, 1}, {&cum_log_prob, 1},
                                   choice.num_candidates);
      for (Candidate& candidate : candidates) candidate.beam = row;
      return candidates;
    }
    for (const TokenScore& t :
         GumbelTopK(scores, {.domain = params_.domain,
                            .num_candidates = choice.num_candidates,
                            .draw = OptionsOfDraw(row, row, edits),
                            .renormalizes = params_.processors.renormalizes,
                            .above = contenders_->Above(row)})) {
      const float cum = cum_log_prob + t.log_prob;
      if (!std::isinf(cum)) candidates.push_back({row, t.token, cum});
    }
    return candidates;
  }

  const PlanSelection& selection_;
  const SelectionParams& params_;
  const std::shared_ptr<const ScoreEdits> edits_;
  // Only the members of the selection's kind are set.
  std::unique_ptr<BeamReplay> replay_;
  std::unique_ptr<BestCandidates> best_;
  std::unique_ptr<CandidateFilter> contenders_;
  SmallVector<Candidate> drawn_;              // [samples]
  std::vector<std::vector<Candidate>> runs_;  // [rows], verified
  SmallVector<int> first_logits_;             // PlanSelection::FirstLogits()
};

}  // namespace

std::vector<SelectionResult> SelectAll(const StepPlan& plan,
                                       std::span<const float> logits,
                                       int vocab_size, ThreadPool& pool) {
  std::vector<WorkItem> items;
  std::vector<GroupWork> groups;
  std::vector<SelectionResult> results;
  groups.reserve(plan.selections.size());
  for (const PlanSelection& selection : plan.selections) {
    groups.emplace_back(&selection)
        .AddItems(static_cast<int>(results.size()), &items);
    results.push_back({.request = selection.request});
  }
  AllocatingLoop(pool, static_cast<int>(items.size()), [&](int i) {
    if (plan.stop.stop_requested()) return;
    groups[items[i].selection].Run(items[i], logits, vocab_size);
  });
  if (plan.stop.stop_requested()) return results;
  AllocatingLoop(pool, static_cast<int>(results.size()),
                 [&](int s) { groups[s].Take(&results[s]); });
  ReportLogProbs(plan, logits, vocab_size, pool, &results);
  return results;
}

}  // namespace espalier
