#include "exec_request/select_all.h"

#include <cmath>
#include <memory>

#include "base/check.h"
#include "exec_request/allocating_loop.h"
#include "exec_request/report_logprobs.h"
#include "kernels/sample/perturb.h"
#include "kernels/sample/sample.h"
#include "kernels/select/select.h"

namespace espalier {
namespace {

// What one thread does at once: a row, or a draw from one.
struct WorkItem {
  int selection = 0;  // index in the plan
  int item = 0;       // rank of the row, or index of the draw
};

int NumItems(const PlanSelection& selection) {
  return selection.rule->kind == SelectionKind::kDraws
             ? static_cast<int>(selection.samples.size())
             : selection.num_rows;
}

std::vector<WorkItem> WorkItems(const StepPlan& plan) {
  std::vector<WorkItem> items;
  for (size_t s = 0; s < plan.selections.size(); ++s) {
    const int count = NumItems(plan.selections[s]);
    for (int i = 0; i < count; ++i) items.push_back({static_cast<int>(s), i});
  }
  return items;
}

// What all rows of a group are selected by.
struct Group {
  const PlanSelection& selection;
  std::shared_ptr<const ScoreEdits> edits;

  ScoreEdits::View EditsOfRow(int row, int vocab_size,
                              std::vector<TokenEdit>* storage) const {
    ScoreEdits::Row asked = {.num_generated = selection.num_generated,
                             .vocab_size = vocab_size};
    if (!selection.histories.empty()) asked.tail = selection.histories[row];
    if (!selection.allowed.empty()) asked.allowed = &selection.allowed[row];
    return edits->OfRow(asked, storage);
  }
};

DrawOptions OptionsOfDraw(const PlanSelection& selection, int sample,
                          const ScoreEdits::View& edits) {
  const SelectionRule& rule = *selection.rule;
  return {.params = rule.sampling,
          .sample = static_cast<uint32_t>(sample),
          .position = static_cast<uint32_t>(selection.num_generated),
          .repetition_penalty = rule.processors.repetition_penalty,
          .edits = edits.edits,
          .only_edited = edits.only_edited};
}

std::vector<TokenScore> SelectOne(const Group& group, int row,
                                  std::span<const float> logits) {
  const PlanSelection& selection = group.selection;
  const SelectionRule& rule = *selection.rule;
  std::vector<TokenEdit> storage;
  const ScoreEdits::View edits =
      group.EditsOfRow(row, static_cast<int>(logits.size()), &storage);
  if (rule.perturbed) {
    return PerturbRow(logits, {.domain = rule.domain,
                               .num_candidates = selection.num_candidates,
                               .draw = OptionsOfDraw(selection, row, edits)});
  }
  return SelectRow(logits,
                   {.domain = rule.domain,
                    .num_candidates = selection.num_candidates,
                    .repetition_penalty = rule.processors.repetition_penalty,
                    .edits = edits.edits,
                    .only_edited = edits.only_edited});
}

// The row that draw `i` is from.
int RowOfDraw(const PlanSelection& selection, int i) {
  return selection.num_rows == 1 ? 0 : i;
}

Candidate DrawOne(const Group& group, int i, std::span<const float> logits) {
  const PlanSelection& selection = group.selection;
  const int row = RowOfDraw(selection, i);
  std::vector<TokenEdit> storage;
  const ScoreEdits::View edits =
      group.EditsOfRow(row, static_cast<int>(logits.size()), &storage);
  const Draw draw =
      DrawRow(logits, OptionsOfDraw(selection, selection.samples[i], edits));
  return {row, draw.token, selection.cum_log_probs[row] + draw.log_prob};
}

// The continuations of one row, best first: by cumulative score, unless it is
// the perturbed one that decides.
std::vector<Candidate> OfRow(const PlanSelection& selection, int row,
                             const std::vector<TokenScore>& chosen) {
  const float cum_log_prob = selection.cum_log_probs[row];
  if (!selection.rule->perturbed) {
    return MergeCandidates({&chosen, 1}, {&cum_log_prob, 1},
                           selection.num_candidates);
  }
  std::vector<Candidate> candidates;
  for (const TokenScore& t : chosen) {
    const float cum = cum_log_prob + t.log_prob;
    if (!std::isinf(cum)) candidates.push_back({0, t.token, cum});
  }
  return candidates;
}

// Every row's by itself.
std::vector<Candidate> InOrder(const PlanSelection& selection,
                               std::span<const std::vector<TokenScore>> rows) {
  std::vector<Candidate> candidates;
  for (int row = 0; row < std::ssize(rows); ++row) {
    for (Candidate candidate : OfRow(selection, row, rows[row])) {
      candidate.beam = row;
      candidates.push_back(candidate);
    }
  }
  return candidates;
}

}  // namespace

std::vector<SelectionResult> SelectAll(const StepPlan& plan,
                                       std::span<const float> logits,
                                       int vocab_size, ThreadPool& pool) {
  const std::vector<WorkItem> items = WorkItems(plan);
  std::vector<std::vector<std::vector<TokenScore>>> rows;
  std::vector<SelectionResult> results;
  std::vector<Group> groups;
  for (const PlanSelection& selection : plan.selections) {
    groups.push_back({selection, EditsOf(*selection.rule)});
    CHECK(!selection.rule->perturbed ||
          selection.rule->kind == SelectionKind::kRows)
        << "only rows are perturbed";
    const bool draws = selection.rule->kind == SelectionKind::kDraws;
    rows.emplace_back(draws ? 0 : selection.num_rows);
    results.push_back({.request = selection.request});
    if (draws) results.back().candidates.resize(selection.samples.size());
  }
  AllocatingLoop(pool, static_cast<int>(items.size()), [&](int i) {
    if (plan.stop.stop_requested()) return;
    const auto [s, item] = items[i];
    const PlanSelection& selection = plan.selections[s];
    const bool draws = selection.rule->kind == SelectionKind::kDraws;
    const size_t line =
        selection.first_logits + (draws ? RowOfDraw(selection, item) : item);
    const auto row = logits.subspan(line * vocab_size, vocab_size);
    if (draws) {
      results[s].candidates[item] = DrawOne(groups[s], item, row);
    } else {
      rows[s][item] = SelectOne(groups[s], item, row);
    }
  });
  if (plan.stop.stop_requested()) return results;
  AllocatingLoop(pool, static_cast<int>(results.size()), [&](int s) {
    const PlanSelection& selection = plan.selections[s];
    if (selection.rule->kind == SelectionKind::kBeams) {
      results[s].candidates = MergeCandidates(rows[s], selection.cum_log_probs,
                                              selection.num_candidates);
    } else if (selection.rule->kind == SelectionKind::kRows) {
      results[s].candidates = InOrder(selection, rows[s]);
    }
  });
  ReportLogProbs(plan, logits, vocab_size, pool, &results);
  return results;
}

}  // namespace espalier
