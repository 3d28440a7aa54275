#include "model/cuda/cuda_step_builder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace espalier {
namespace {

// The row that a line of logits is of.
int RowOfLine(const StepPlan& plan, int line) {
  const auto row =
      std::lower_bound(plan.rows.begin(), plan.rows.end(), line,
                       [](const PlanRow& r, int wanted) {
                         return r.first_logits + r.num_logits <= wanted;
                       });
  CHECK(row != plan.rows.end()) << "line " << line << " is of no row";
  return static_cast<int>(row - plan.rows.begin());
}

// The rows that a selection's lines are of, by rank.
absl::StatusOr<std::vector<int>> RowsOf(const StepPlan& plan,
                                        const PlanSelection& selection) {
  std::vector<int> rows;
  for (int rank = 0; rank < selection.num_rows; ++rank) {
    const int line = selection.first_logits + rank;
    rows.push_back(RowOfLine(plan, line));
    const PlanRow& row = plan.rows[rows.back()];
    const int last = row.first_logits + row.num_logits - 1;
    if (line == last) continue;
    return InvalidArgument("a selection is from line ", line,
                           " of logits, on a CUDA device it is from a row's ",
                           "last, ", last);
  }
  return rows;
}

int LastPosition(const PlanRow& row) {
  return row.first_position + row.num_tokens - 1;
}

// A generated token for each slot, to be fed over tables that are complete. A
// group of which fewer beams live is fed from the plan, row by row: so a step
// has no more tokens than the plan.
bool FeedsBeams(const StepPlan& plan, const PlanSelection& selection,
                std::span<const int> rows) {
  return selection.num_generated > 0 &&
         selection.num_rows == selection.num_slots &&
         std::all_of(rows.begin(), rows.end(),
                     [&](int row) { return plan.rows[row].num_tokens == 1; });
}

// How many pages all rows begin with, `limit` at most.
int NumCommonPages(const StepPlan& plan, std::span<const int> rows, int limit) {
  const std::span<const PageId> first = plan.row_pages(rows[0]);
  size_t count = std::min<size_t>(limit, first.size());
  for (const int row : rows.subspan(1)) {
    const std::span<const PageId> pages = plan.row_pages(row);
    count = std::mismatch(first.begin(), first.begin() + count, pages.begin(),
                          pages.end())
                .first -
            first.begin();
  }
  return static_cast<int>(count);
}

std::span<const int> Ids(std::span<const PageId> pages) {
  static_assert(sizeof(PageId) == sizeof(int));
  return {reinterpret_cast<const int*>(pages.data()), pages.size()};
}

// Tokens, counted once for each shared run they are in.
int64_t NumRunQueries(const CudaBatchImage& image) {
  int64_t count = 0;
  for (const CudaSharedRun& run : image.shared_runs) count += run.num_queries;
  return count;
}

template <typename Ask>  // PlanSelection or GroupContinuation
CudaGroupRequest RequestOf(const Ask& ask) {
  return {.num_candidates = ask.num_candidates,
          .num_generated = ask.num_generated,
          .rule = ask.rule.get()};
}

CudaGroupRequest RequestOfRows(const PlanSelection& selection) {
  CudaGroupRequest request = RequestOf(selection);
  request.histories = selection.histories;
  request.allowed = selection.allowed;
  request.slots = selection.slots;
  request.samples = selection.samples;
  return request;
}

}  // namespace

CudaStepBuilder::CudaStepBuilder(const ModelDescription& model,
                                 const CudaAttentionShape& attention,
                                 const CudaStepMemory* memory,
                                 const CudaDevice& device)
    : shape_{.vocab_size = model.vocab_size,
             .page_size = model.page_size,
             .max_positions = memory->limits().table_stride * model.page_size,
             .max_edits = memory->limits().max_edits},
      memory_(memory),
      groups_(memory->limits().num_slots),
      mirror_(memory, attention, device) {}

absl::StatusOr<CudaStep> CudaStepBuilder::Build(const StepPlan& plan,
                                                CudaDelta* delta) {
  delta_ = delta;
  beams_.clear();
  prompts_.clear();
  DropEnded(plan);
  RETURN_IF_ERROR(PlaceGroups(plan));
  RETURN_IF_ERROR(FindGroups(plan));
  CudaStep step;
  step.moves = groups_.TakeMoves();
  CudaBatchImage image(shape_);
  RETURN_IF_ERROR(LayOut(plan, &image, &step));
  mirror_.Send(image, delta_);
  step.has_partials = mirror_.has_partials();
  PutCopies(plan);
  was_reset_ = false;
  return step;
}

void CudaStepBuilder::DropEnded(const StepPlan& plan) {
  for (const RequestId request : plan.ended) groups_.Drop(request);
}

void CudaStepBuilder::Reset(int64_t num_steps) {
  groups_.Clear();
  mirror_.Forget();
  was_reset_ = true;
  num_steps_ = num_steps;
}

absl::Status CudaStepBuilder::PlaceGroups(const StepPlan& plan) {
  for (const PlanSelection& selection : plan.selections) {
    if (selection.num_rows == 0) continue;
    RETURN_IF_ERROR(
        groups_.Set(selection.request, selection.num_slots).status());
  }
  return absl::OkStatus();
}

absl::Status CudaStepBuilder::FindGroups(const StepPlan& plan) {
  size_t answer = 0;
  for (const PlanSelection& selection : plan.selections) {
    RETURN_IF_ERROR(FindSelection(plan, selection, answer++));
  }
  for (const GroupContinuation& continuation : plan.continuations) {
    RETURN_IF_ERROR(FindContinuation(continuation, answer++));
  }
  // In the order of their slots: the same groups have the same rows in the
  // next step, however the plan lists them.
  std::sort(beams_.begin(), beams_.end(), [](const Entry& a, const Entry& b) {
    return a.group->first_slot < b.group->first_slot;
  });
  return absl::OkStatus();
}

absl::Status CudaStepBuilder::FindSelection(const StepPlan& plan,
                                            const PlanSelection& selection,
                                            size_t answer) {
  if (selection.num_rows == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<int> rows, RowsOf(plan, selection));
  for (const int row : rows) RETURN_IF_ERROR(CheckPages(plan, row));
  const bool feeds_beams = FeedsBeams(plan, selection, rows);
  CudaGroup* const group = groups_.Find(selection.request);
  RETURN_IF_ERROR(SetGroup(plan, selection, rows, feeds_beams, group));
  Entry entry = {group, RequestOfRows(selection), answer, std::move(rows),
                 selection.cum_log_probs};
  (feeds_beams ? beams_ : prompts_).push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status CudaStepBuilder::FindContinuation(
    const GroupContinuation& continuation, size_t answer) {
  if (continuation.rule->kind == SelectionKind::kRows) {
    return InvalidArgument(
        "rows that choose by themselves cannot be continued without their "
        "last answer");
  }
  CudaGroup* const group = groups_.Find(continuation.request);
  if (group == nullptr) return absl::OkStatus();  // lost with a failed plan
  CHECK_EQ(continuation.position, group->position + 1);
  CHECK_EQ(continuation.tail_pages.size(),
           static_cast<size_t>(group->num_slots));
  group->position = continuation.position;
  if (group->tail_pages != continuation.tail_pages) {
    group->tail_pages = continuation.tail_pages;
    delta_->Put<int>(memory_->arrays().state.tails + group->first_slot,
                     Ids(group->tail_pages));
  }
  beams_.push_back({group, RequestOf(continuation), answer, {}, {}});
  return absl::OkStatus();
}

absl::Status CudaStepBuilder::SetGroup(const StepPlan& plan,
                                       const PlanSelection& selection,
                                       std::span<const int> rows,
                                       bool feeds_beams, CudaGroup* group) {
  const int position = LastPosition(plan.rows[rows[0]]);
  for (const int row : rows) {
    if (LastPosition(plan.rows[row]) != position) {
      return InvalidArgument("rows of one request end at positions ", position,
                             " and ", LastPosition(plan.rows[row]));
    }
  }
  // Full pages that no beam of the group will write into.
  const int num_full = (position + (feeds_beams ? 0 : 1)) / shape_.page_size;
  group->num_shared_pages = NumCommonPages(plan, rows, num_full);
  group->position = position;
  group->eos_token_ids = selection.eos_token_ids;
  group->tail_pages.clear();
  PutTables(plan, selection, rows, *group);
  PutHomes(selection, *group);
  if (feeds_beams) PutBeams(plan, selection, rows, *group);
  return absl::OkStatus();
}

void CudaStepBuilder::PutTables(const StepPlan& plan,
                                const PlanSelection& selection,
                                std::span<const int> rows,
                                const CudaGroup& group) {
  const int num_shared = group.num_shared_pages;
  const CudaDelta::Shared shared =
      delta_->Share(Ids(plan.row_pages(rows[0]).first(num_shared)));
  for (int slot = 0; slot < group.num_slots; ++slot) {
    delta_->Put(memory_->table(group.first_slot + slot), shared);
  }
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const int slot = group.first_slot + selection.slots[rank];
    delta_->Put<int>(memory_->table(slot) + num_shared,
                     Ids(plan.row_pages(rows[rank]).subspan(num_shared)));
  }
}

int CudaStepBuilder::HomeOf(const PlanSelection& selection, int rank) {
  return selection.rule->kind == SelectionKind::kRows ? selection.slots[rank]
                                                      : rank;
}

void CudaStepBuilder::PutHomes(const PlanSelection& selection,
                               const CudaGroup& group) {
  // Each row of kRows is a group of one slot, with a position of its own.
  const bool rows = selection.rule->kind == SelectionKind::kRows;
  const int num_homes = rows ? group.num_slots : selection.num_rows;
  std::vector<int> slots(num_homes);
  for (int home = 0; home < num_homes; ++home) {
    slots[home] = group.first_slot + (rows ? home : selection.slots[home]);
  }
  const CudaResidentState& state = memory_->arrays().state;
  delta_->Put<int>(state.slots + group.first_slot, slots);
  delta_->Put<int>(
      state.positions + group.first_slot,
      std::vector<int>(rows ? group.num_slots : 1, group.position));
}

void CudaStepBuilder::PutBeams(const StepPlan& plan,
                               const PlanSelection& selection,
                               std::span<const int> rows,
                               const CudaGroup& group) {
  const int tail = group.position / shape_.page_size;
  std::vector<int> tokens(rows.size());
  std::vector<int> tails(rows.size());
  std::vector<float> cums(rows.size());
  for (int rank = 0; rank < std::ssize(rows); ++rank) {
    const int home = HomeOf(selection, rank);
    tokens[home] = plan.row_tokens(plan.rows[rows[rank]]).front();
    cums[home] = selection.cum_log_probs[rank];
    tails[selection.slots[rank]] = plan.row_pages(rows[rank])[tail].value;
  }
  const CudaResidentState& state = memory_->arrays().state;
  const int first = group.first_slot;
  delta_->Put<int>(state.tokens + first, tokens);
  delta_->Put<float>(state.cum_log_probs + first, cums);
  delta_->Put<int>(state.sources + first, std::vector<int>(rows.size(), -1));
  delta_->Put<int>(state.tails + first, tails);
  if (selection.rule->kind != SelectionKind::kDraws) return;
  const std::vector<uint32_t> samples(selection.samples.begin(),
                                      selection.samples.end());
  delta_->Put<uint32_t>(state.samples + first, samples);
}

absl::Status CudaStepBuilder::LayOut(const StepPlan& plan,
                                     CudaBatchImage* image, CudaStep* step) {
  for (const PlanSelection& selection : plan.selections) {
    step->answers.push_back(
        {.request = selection.request,
         .has_log_probs = selection.rule->num_logprobs >= 0});
    if (selection.rule->perturbed) {
      step->answers.back().cum_log_probs = selection.cum_log_probs;
    }
  }
  for (const GroupContinuation& continuation : plan.continuations) {
    step->answers.push_back(
        {.request = continuation.request,
         .has_log_probs = continuation.rule->num_logprobs >= 0});
  }
  for (const Entry& entry : beams_) {
    step->answers[entry.answer].parts =
        image->AddBeams(*entry.group, entry.request);
  }
  RETURN_IF_ERROR(LayOutPrompts(plan, image, step));
  // The plan's copies are of its own rows.
  const int num_copies = static_cast<int>(plan.page_copies.size());
  step->only_beams = image->prompt_tokens.empty() && image->num_rows > 0 &&
                     num_copies <= static_cast<int>(plan.rows.size());
  if (step->only_beams) {
    image->Pad(PaddedRows(image->num_rows, memory_->limits().max_rows),
               memory_->padding_table());
  }
  step->num_rows = image->num_rows;
  step->num_tokens = image->num_tokens();
  step->num_lines = image->num_lines();
  step->num_groups = image->num_groups();
  step->max_candidates = image->max_candidates;
  step->max_group_rows = image->max_group_rows;
  step->num_draws = image->num_draws;
  step->max_perturbed = image->max_perturbed;
  step->num_asked = image->log_probs.num_asked;
  step->max_best = image->log_probs.max_best;
  step->max_copies = step->num_rows + (step->only_beams ? 0 : num_copies);
  step->has_edits = image->has_edits();
  step->makes_edits = image->makes_edits();
  return CheckLimits(*image);
}

void CudaStepBuilder::PutPageTokens(const StepPlan& plan, size_t row) {
  const std::span<const TokenId> tokens = plan.row_tokens(plan.rows[row]);
  const std::span<const PageId> pages = plan.row_pages(row);
  const CudaDelta::Shared fed = delta_->Share(tokens);
  for (int i = 0; i < fed.count;) {
    const int position = plan.rows[row].first_position + i;
    const int place = position % shape_.page_size;
    const int count = std::min(shape_.page_size - place, fed.count - i);
    const int64_t page = pages[position / shape_.page_size].value;
    delta_->Put(
        memory_->arrays().state.page_tokens + page * shape_.page_size + place,
        CudaDelta::Shared{fed.source + i, count});
    i += count;
  }
}

absl::Status CudaStepBuilder::LayOutPrompts(const StepPlan& plan,
                                            CudaBatchImage* image,
                                            CudaStep* step) {
  ASSIGN_OR_RETURN(const std::vector<int> tables, PromptTables(plan));
  std::vector<int> first_tokens(plan.rows.size(), -1);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (tables[i] < 0) continue;
    const PlanRow& row = plan.rows[i];
    first_tokens[i] = image->num_tokens();
    image->AddPrompt(plan.row_tokens(row), row.first_position, tables[i]);
    PutPageTokens(plan, i);
  }
  for (const Entry& entry : prompts_) {
    std::vector<int> last_tokens;
    for (const int row : entry.rows) {
      last_tokens.push_back(first_tokens[row] + plan.rows[row].num_tokens - 1);
    }
    step->answers[entry.answer].parts = image->AddPromptLines(
        *entry.group, entry.request, last_tokens, entry.cum_log_probs);
  }
  return LayOutScorings(plan, first_tokens, image, step);
}

absl::Status CudaStepBuilder::LayOutScorings(const StepPlan& plan,
                                             std::span<const int> first_tokens,
                                             CudaBatchImage* image,
                                             CudaStep* step) {
  for (const PlanScoring& scoring : plan.scorings) {
    CudaStep::Scored& scored = step->scorings.emplace_back();
    scored.request = scoring.request;
    if (scoring.tokens.empty()) continue;
    const int row_idx = RowOfLine(plan, scoring.first_logits);
    const PlanRow& row = plan.rows[row_idx];
    const int skipped = scoring.first_logits - row.first_logits;
    if (first_tokens[row_idx] < 0 ||
        skipped + std::ssize(scoring.tokens) > row.num_logits) {
      return InvalidArgument("lines that are scored must be of one row of a ",
                             "prompt");
    }
    const int first_line = row.num_tokens - row.num_logits + skipped;
    scored.tokens = scoring.tokens;
    scored.place = image->AddKnownLines(first_tokens[row_idx] + first_line,
                                        scoring.tokens, scoring.num_logprobs);
  }
  return absl::OkStatus();
}

// Rows that no group asks about, chunks of prompts, get tables for the step.
absl::StatusOr<std::vector<int>> CudaStepBuilder::PromptTables(
    const StepPlan& plan) {
  constexpr int kOwn = -2;
  std::vector<int> tables(plan.rows.size(), kOwn);
  for (const Entry& entry : beams_) {
    for (const int row : entry.rows) tables[row] = -1;
  }
  for (const Entry& entry : prompts_) {
    const PlanSelection& selection = plan.selections[entry.answer];
    for (size_t rank = 0; rank < entry.rows.size(); ++rank) {
      tables[entry.rows[rank]] =
          entry.group->first_slot + selection.slots[rank];
    }
  }
  int num_own = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (tables[i] != kOwn) continue;
    if (num_own == memory_->num_row_tables()) {
      return ResourceExhausted("a step feeds parts of more than ", num_own,
                               " prompts");
    }
    tables[i] = memory_->row_table(num_own++);
    RETURN_IF_ERROR(CheckPages(plan, i));
    delta_->Put<int>(memory_->table(tables[i]), Ids(plan.row_pages(i)));
  }
  return tables;
}

absl::Status CudaStepBuilder::CheckPages(const StepPlan& plan, int row) const {
  const int num_pages = static_cast<int>(plan.row_pages(row).size());
  if (num_pages <= memory_->limits().table_stride) return absl::OkStatus();
  return ResourceExhausted("a row has ", num_pages,
                           " pages, there is room for ",
                           memory_->limits().table_stride);
}

absl::Status CudaStepBuilder::CheckLimits(const CudaBatchImage& image) const {
  const CudaStepLimits& limits = memory_->limits();
  const std::pair<const char*, std::pair<int64_t, int64_t>> figures[] = {
      {"lines of logits", {image.num_lines(), limits.max_rows}},
      {"tokens", {image.num_tokens(), limits.max_tokens}},
      {"candidates", {image.num_candidates, limits.max_candidates}},
      {"draws", {image.num_draws, limits.max_rows}},
      {"best tokens to report",
       {image.log_probs.num_best, limits.max_best_tokens}},
      {"EOS ids", {image.eos_token_ids.size(), limits.max_eos_token_ids}},
      {"edits of scores",
       {image.edits.size() + image.num_made_edits, limits.max_edits}},
      {"items of attention",
       {image.num_tokens() + NumRunQueries(image), limits.max_items}},
      {"partial sums of attention",
       {2 * int64_t{image.num_tokens()}, limits.max_partials}},
  };
  for (const auto& [what, figure] : figures) {
    if (figure.first <= figure.second) continue;
    return ResourceExhausted("a step has ", figure.first, " ", what,
                             ", the executor has room for ", figure.second);
  }
  return absl::OkStatus();
}

void CudaStepBuilder::PutCopies(const StepPlan& plan) {
  const CudaResidentState& state = memory_->arrays().state;
  const int num_copies = static_cast<int>(plan.page_copies.size());
  if (num_copies > 0 || was_reset_) {
    delta_->Put<PageCopy>(state.copies, plan.page_copies);
    delta_->Put(state.num_copies, num_copies);
  }
  if (!was_reset_) return;
  // Of a step that ran in part, the start is forgotten.
  const CudaStepClock clock = {.started_ns = 0, .num_steps = num_steps_};
  const auto words =
      std::bit_cast<std::array<int, sizeof(clock) / sizeof(int)>>(clock);
  delta_->Put<int>(reinterpret_cast<const int*>(state.clock), words);
}

int PaddedRows(int num_rows, int max_rows) {
  // Two sizes an octave from 16 on, where a row begins to cost something.
  int padded = 1;
  while (padded < num_rows) {
    const int half = padded / 2;
    padded =
        padded >= 16 && num_rows <= padded + half ? padded + half : 2 * padded;
  }
  return std::max(num_rows, std::min(padded, max_rows));
}

}  // namespace espalier
