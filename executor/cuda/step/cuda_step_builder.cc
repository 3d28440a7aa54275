#include "executor/cuda/step/cuda_step_builder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/status.h"
#include "executor/cuda/batch/cuda_draft_room.h"
#include "executor/cuda/step/cuda_group_init.h"
#include "executor/cuda/step/cuda_step_drafts.h"
#include "kernels/constrain/token_masks.h"

namespace espalier {
namespace {

// Returns the number of queries of shared prefixes; a token counts once for
// each prefix.
int64_t NumRunQueries(const CudaInputBatch& batch) {
  int64_t count = 0;
  for (const CudaSharedPrefix& run : batch.shared_runs)
    count += run.num_queries;
  return count;
}

bool RanksByNoise(const PlanSelection& selection) {
  const RowSelection* const rows = selection.as_rows();
  return rows != nullptr && rows->gumbel_top_k;
}

CudaGroupRequest RequestOf(const GroupContinuation& continuation,
                           int constraint) {
  return {.kind = continuation.kind,
          .num_candidates = continuation.num_candidates,
          .num_generated = continuation.num_generated,
          .params = continuation.params.get(),
          .constraint = constraint,
          .may_lack =
              constraint >= 0 && continuation.kind == SelectionKind::kBeams};
}

int LengthOf(const PlanSource* source) {
  return source == nullptr ? 0 : source->input->length();
}

// Returns ScratchFault() of the step, with the graph's shape if it has one.
std::string FaultOf(const CudaInputBatch& batch, const CudaStep& step,
                    const CudaStepLimits& limits) {
  return ScratchFault(
      batch, step.is_replayable ? GraphShape(step.shape, limits) : step.shape,
      limits);
}

}  // namespace

CudaStepBuilder::CudaStepBuilder(const ModelDescription& model,
                                 const CudaAttentionShape& attention,
                                 const CudaStepMemory* memory,
                                 const CudaDevice& device,
                                 const CudaConstraints* constraints)
    : shape_{.vocab_size = model.vocab_size,
             .page_size = model.page_size,
             .max_positions = memory->limits().table_stride * model.page_size,
             .max_edits = memory->limits().max_edits,
             .first_list_mask = memory->limits().first_list_mask()},
      memory_(memory),
      device_ordinal_(device.ordinal),
      constraints_(constraints),
      list_masks_(memory->limits().num_list_masks()),
      groups_(memory->limits().num_slots),
      uploader_(memory->arrays(), memory->limits(), attention, device) {}

absl::StatusOr<CudaStep> CudaStepBuilder::Build(
    const StepPlan& plan, const absl::Status& gumbel_status, CudaDelta* delta) {
  delta_ = delta;
  gumbel_status_ = gumbel_status;
  beams_.clear();
  prompts_.clear();
  refused_.clear();
  DropEnded(plan);
  RETURN_IF_ERROR(PlaceGroups(plan));
  RETURN_IF_ERROR(FindGroups(plan));
  CudaStep step;
  step.moves = groups_.TakeMoves();
  CudaInputBatch batch(shape_, &list_masks_);
  RETURN_IF_ERROR(LayOut(plan, &batch, &step));
  uploader_.Send(batch, delta_);
  if (!step.placed_drafts.empty()) uploader_.ForgetDrafts();
  if (!step.unread_rows.empty()) uploader_.ForgetVerifySequences();
  step.shape.has_partials = uploader_.attention().has_partials();
  step.shape.has_cross_partials = uploader_.cross_attention().has_partials();
  step.shape.has_own_tables = uploader_.attention().has_own_tables();
  PutMasks(batch);
  PutCopies(plan);
  DropPassing(plan);
  was_reset_ = false;
  return step;
}

void CudaStepBuilder::DropEnded(const StepPlan& plan) {
  for (const RequestId request : plan.ended) groups_.Drop(request);
}

void CudaStepBuilder::Reset(int64_t num_steps) {
  groups_.Clear();
  uploader_.Forget();
  list_masks_.Clear();
  was_reset_ = true;
  num_steps_ = num_steps;
}

absl::Status CudaStepBuilder::RefusalOf(const PlanSelection& selection) const {
  if (RanksByNoise(selection) && !gumbel_status_.ok()) return gumbel_status_;
  return IndexOf(*selection.params).status();
}

absl::StatusOr<int> CudaStepBuilder::IndexOf(
    const SelectionParams& params) const {
  if (constraints_ == nullptr) return -1;
  return constraints_->Find(params);
}

CudaGroupRequest CudaStepBuilder::RequestOfRows(
    const PlanSelection& selection) const {
  CudaGroupRequest request = {.kind = selection.kind(),
                              .num_candidates = selection.num_candidates(),
                              .gumbel_top_k = RanksByNoise(selection),
                              .num_generated = selection.num_generated,
                              .params = selection.params.get(),
                              .histories = selection.histories,
                              .allowed = selection.allowed,
                              .slots = selection.slots};
  if (const DrawSelection* draws = selection.as_draws()) {
    request.samples = draws->samples;
  }
  if (const BeamSelection* beams = selection.as_beams()) {
    request.may_lack = beams->may_lack;
  }
  request.constraint = IndexOf(*selection.params).value_or(-1);  // -1: refused
  request.places = selection.places;
  return request;
}

absl::Status CudaStepBuilder::PlaceGroups(const StepPlan& plan) {
  for (const PlanSelection& selection : plan.selections) {
    if (selection.num_rows == 0) continue;
    RETURN_IF_ERROR(
        groups_.Set(selection.request, NumSlotsOf(selection)).status());
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
  // Sorted by slot, groups have the same rows in every step, independent of the
  // plan's order.
  std::sort(beams_.begin(), beams_.end(), [](const Entry& a, const Entry& b) {
    return a.group->first_slot < b.group->first_slot;
  });
  return absl::OkStatus();
}

absl::Status CudaStepBuilder::FindSelection(const StepPlan& plan,
                                            const PlanSelection& selection,
                                            size_t answer) {
  if (selection.num_rows == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto rows, CudaGroupInit::Find(plan, selection));
  for (const int row : rows.rows()) RETURN_IF_ERROR(CheckPages(plan, row));
  CudaGroup* const group = groups_.Find(selection.request);
  rows.Put(*memory_, shape_.page_size, group, delta_);
  PutSource(plan, rows.rows()[0], group);
  std::vector<Entry>& entries = !RefusalOf(selection).ok() ? refused_
                                : rows.feeds_beams()       ? beams_
                                                           : prompts_;
  entries.push_back({group, RequestOfRows(selection), answer, rows.rows(),
                     selection.cum_log_probs, &selection});
  return absl::OkStatus();
}

// All rows of a group have its source.
void CudaStepBuilder::PutSource(const StepPlan& plan, int row,
                                CudaGroup* group) {
  const PlanSource* const source = plan.source_of(row);
  group->source_length = LengthOf(source);
  if (source == nullptr) return;
  delta_->Put<int>(memory_->source_table(group->first_slot),
                   Words(*source->pages));
}

absl::Status CudaStepBuilder::FindContinuation(
    const GroupContinuation& continuation, size_t answer) {
  if (continuation.kind == SelectionKind::kRows) {
    return InvalidArgument(
        "rows that choose by themselves cannot be continued without their "
        "last answer");
  }
  CudaGroup* const group = groups_.Find(continuation.request);
  if (group == nullptr) return absl::OkStatus();  // lost with a failed plan
  const absl::StatusOr<int> constraint = IndexOf(*continuation.params);
  if (!constraint.ok()) {
    groups_.Drop(continuation.request);
    return absl::OkStatus();
  }
  CHECK_EQ(continuation.position, group->position + 1);
  CHECK_EQ(continuation.tail_pages.size(),
           static_cast<size_t>(group->num_slots));
  group->position = continuation.position;
  if (group->tail_pages != continuation.tail_pages) {
    group->tail_pages = continuation.tail_pages;
    delta_->Put<int>(memory_->arrays().state.tails + group->first_slot,
                     Words(group->tail_pages));
  }
  beams_.push_back(
      {group, RequestOf(continuation, *constraint), answer, {}, {}, nullptr});
  return absl::OkStatus();
}

absl::Status CudaStepBuilder::LayOut(const StepPlan& plan,
                                     CudaInputBatch* batch, CudaStep* step) {
  for (const PlanSelection& selection : plan.selections) {
    step->answers.push_back(
        {.request = selection.request,
         .has_log_probs = selection.params->num_logprobs >= 0});
    if (selection.num_rows > 0) {
      step->answers.back().error = RefusalOf(selection);
    }
    if (selection.kind() != SelectionKind::kRows) continue;
    step->answers.back().rows = &selection;
  }
  for (const GroupContinuation& continuation : plan.continuations) {
    step->answers.push_back(
        {.request = continuation.request,
         .has_log_probs = continuation.params->num_logprobs >= 0,
         .error = IndexOf(*continuation.params).status()});
  }
  for (const Entry& entry : beams_) {
    step->answers[entry.answer].parts =
        batch->AddBeams(*entry.group, entry.request);
  }
  const int num_padded = NumReplayableRows(plan, *batch);
  if (num_padded >= 0) batch->Pad(num_padded, memory_->padding_table());
  RETURN_IF_ERROR(LayOutPrompts(plan, batch, step));
  // Drafts that found no room have no rows of logits.
  step->is_replayable = num_padded >= 0 && IsReplayable(*batch);
  if (step->is_replayable && !batch->prompt_tokens.empty()) {
    const int most =
        memory_->limits().max_rows - batch->verified.num_draft_rows();
    batch->PadPrompts(PaddedRows(batch->num_tokens(), most),
                      memory_->padding_table());
  }
  PlaceDraftRows(memory_->limits(), device_ordinal_, batch, step);
  // After draws that the device writes.
  for (CudaStep::UnreadRow& row : step->unread_rows) {
    row.first_draw +=
        batch->num_draws() - static_cast<int>(batch->prompt_draws.size());
  }
  step->shape = ShapeOf(
      *batch,
      step->is_replayable ? 0 : static_cast<int>(plan.page_copies.size()));
  RETURN_IF_ERROR(CheckLimits(*batch, *step));
  DCHECK(FaultOf(*batch, *step, memory_->limits()).empty())
      << FaultOf(*batch, *step, memory_->limits());
  return absl::OkStatus();
}

int CudaStepBuilder::NumReplayableRows(const StepPlan& plan,
                                       const CudaInputBatch& batch) const {
  // Prompt tokens seldom have rows of logits. If all of them do, because a
  // prompt is scored, their number differs from prompt to prompt, so that
  // graphs would not be reused.
  if (plan.num_logits != std::ssize(plan.tokens) || !plan.scorings.empty()) {
    return -1;
  }
  // Sources need encoder calls of arbitrary number and size.
  if (plan.NumSourceTokens() > 0) return -1;
  // A graph has capacity for one copy per row. Rows of continuations need at
  // most one each, for a forked child. The plan's own copies must therefore not
  // outnumber its own rows.
  if (plan.page_copies.size() > plan.rows.size()) return -1;
  const int max_rows = memory_->limits().max_rows;
  const int num_padded = PaddedRows(batch.num_rows, max_rows);
  // Padding takes no room from drafts.
  int64_t num_others = std::ssize(plan.tokens) + NumDraftRows(plan);
  for (const Entry& entry : beams_) {
    num_others -= std::ssize(entry.rows);
  }
  const bool fits = num_others == 0 || num_padded + num_others <= max_rows;
  return fits ? num_padded : -1;
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
                                            CudaInputBatch* batch,
                                            CudaStep* step) {
  ASSIGN_OR_RETURN(const std::vector<RowTables> tables, PromptTables(plan));
  std::vector<int> first_tokens(plan.rows.size(), -1);
  const std::vector<int> num_ahead = NumAhead(plan);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    if (tables[i].own < 0) continue;
    first_tokens[i] = batch->num_tokens();
    batch->AddPrompt(plan.row_tokens(row), row.first_position, tables[i].own,
                     {tables[i].source, LengthOf(plan.source_of(i))},
                     num_ahead[i]);
    // For other rows the device finds the positions.
    if (num_ahead[i] == 0) PutPageTokens(plan, i);
  }
  SharePages(plan, first_tokens, batch);
  for (const PlanSource& source : plan.sources) {
    if (!source.is_read()) continue;
    const int table = tables[source.first_row].source;
    CHECK_GE(table, 0) << "a row of a beam whose source is not read yet";
    step->sources.push_back({.input = source.input,
                             .table = table,
                             .num_stored = source.num_stored});
  }
  LayOutLogitsRows(plan, first_tokens, batch, step);
  return LayOutScorings(plan, first_tokens, tables, batch, step);
}

// Returns for each row by how many positions the device may advance its start.
std::vector<int> CudaStepBuilder::NumAhead(const StepPlan& plan) const {
  std::vector<int> num_ahead(plan.rows.size());
  for (const Entry& entry : prompts_) {
    const DrawSelection* const draws = entry.selection->as_draws();
    if (draws == nullptr) continue;
    const std::vector<PendingDraft>& before = draws->drafts.verified_before;
    for (size_t rank = 0; rank < before.size(); ++rank) {
      num_ahead[entry.rows[rank]] = before[rank].num_tokens();
    }
  }
  return num_ahead;
}

// Rows of one group share their prompt and often more, as with draft paths and
// samples with drafts. The pages before the first fed position of all rows are
// complete. Only rows with logits for each token can share, because attention
// bounds the number of queries with a shared prefix.
void CudaStepBuilder::SharePages(const StepPlan& plan,
                                 std::span<const int> first_tokens,
                                 CudaInputBatch* batch) const {
  for (const Entry& entry : prompts_) {
    if (entry.rows.size() < 2) continue;
    const int first_token = first_tokens[entry.rows[0]];
    int num_pages = entry.group->num_shared_pages;
    int num_tokens = 0;
    bool follow_each_other = first_token >= 0;
    bool have_logits = true;
    for (const int row_idx : entry.rows) {
      const PlanRow& row = plan.rows[row_idx];
      follow_each_other &= first_tokens[row_idx] == first_token + num_tokens;
      have_logits &= row.num_logits == row.num_tokens;
      num_tokens += row.num_tokens;
      num_pages = std::min(num_pages, row.first_position / shape_.page_size);
    }
    if (num_pages == 0 || !follow_each_other || !have_logits) continue;
    batch->SharePages(first_token, num_tokens, num_pages * shape_.page_size);
  }
}

void CudaStepBuilder::LayOutLogitsRows(const StepPlan& plan,
                                       std::span<const int> first_tokens,
                                       CudaInputBatch* batch, CudaStep* step) {
  for (const Entry& entry : prompts_) {
    if (HasDifferentRows(*entry.selection)) continue;
    std::vector<int> last_tokens;
    for (const int row : entry.rows) {
      last_tokens.push_back(first_tokens[row] + plan.rows[row].num_tokens - 1);
    }
    step->answers[entry.answer].parts = batch->AddPromptLogitsRows(
        *entry.group, entry.request, last_tokens, entry.cum_log_probs);
  }
  CudaDraftRoom room(plan, memory_->limits(), *batch);
  for (const Entry& entry : prompts_) {
    if (!HasDifferentRows(*entry.selection)) continue;
    AddDifferentRows({.plan = &plan,
                      .selection = entry.selection,
                      .rows = entry.rows,
                      .first_tokens = first_tokens,
                      .group = entry.group,
                      .request = entry.request,
                      .verifies = room.Take(*entry.selection)},
                     batch, step, &step->answers[entry.answer]);
  }
}

absl::Status CudaStepBuilder::LayOutScorings(const StepPlan& plan,
                                             std::span<const int> first_tokens,
                                             std::span<const RowTables> tables,
                                             CudaInputBatch* batch,
                                             CudaStep* step) {
  for (const PlanPromptLogprobs& scoring : plan.scorings) {
    CudaStep::Scored& scored = step->scorings.emplace_back();
    scored.request = scoring.request;
    if (scoring.tokens.empty()) continue;
    const int row_idx = PlanRowOf(plan, scoring.first_logits);
    const PlanRow& row = plan.rows[row_idx];
    const int skipped = scoring.first_logits - row.first_logits;
    if (first_tokens[row_idx] < 0 ||
        skipped + std::ssize(scoring.tokens) > row.num_logits) {
      return InvalidArgument("rows that are scored must be of one row of a ",
                             "prompt");
    }
    const int first_logits_row = row.num_tokens - row.num_logits + skipped;
    scored.tokens = scoring.tokens;
    const int first_token = first_tokens[row_idx] + first_logits_row;
    const AlignmentQuery* const query = scoring.alignment.get();
    scored.place = batch->AddPromptLogprobRows(
        first_token, scoring.tokens, scoring.num_logprobs,
        query != nullptr ? query->num_text_tokens : 0);
    if (query == nullptr) continue;
    const PlanSource* const source = plan.source_of(row_idx);
    if (source == nullptr || query->num_positions > LengthOf(source)) {
      return InvalidArgument("an alignment is of ", query->num_positions,
                             " positions, the row's source has ",
                             LengthOf(source));
    }
    step->aligned.push_back(
        {.first_token = first_token,
         .num_tokens = static_cast<int>(std::ssize(scoring.tokens)),
         .source_table = tables[row_idx].source,
         .query = query});
    scored.first_score = step->num_scores;
    scored.num_scores = std::ssize(scoring.tokens) * std::ssize(query->heads) *
                        query->num_positions;
    step->num_scores += scored.num_scores;
  }
  return absl::OkStatus();
}

// Rows without a selection, such as prompt chunks, get tables for this step
// only.
absl::StatusOr<std::vector<CudaStepBuilder::RowTables>>
CudaStepBuilder::PromptTables(const StepPlan& plan) {
  constexpr int kOwn = -2;
  std::vector<RowTables> tables(plan.rows.size(), {kOwn, -1});
  for (const Entry& entry : beams_) {
    for (const int row : entry.rows) tables[row] = {};
  }
  for (const std::vector<Entry>* const entries : {&prompts_, &refused_}) {
    for (const Entry& entry : *entries) {
      const PlanSelection& selection = plan.selections[entry.answer];
      for (int i = 0; i < std::ssize(entry.rows); ++i) {
        const int first_slot = entry.group->first_slot;
        tables[entry.rows[i]] = {first_slot + SlotOf(selection, i), first_slot};
      }
    }
  }
  int num_own = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    if (tables[i].own != kOwn) continue;
    if (num_own == memory_->num_row_tables()) {
      return ResourceExhausted("a step feeds parts of more than ", num_own,
                               " prompts");
    }
    const int table = memory_->row_table(num_own++);
    tables[i] = {table, table};
    RETURN_IF_ERROR(CheckPages(plan, i));
    delta_->Put<int>(memory_->table(table), Words(plan.row_pages(i)));
    if (const PlanSource* source = plan.source_of(i); source != nullptr) {
      delta_->Put<int>(memory_->source_table(table), Words(*source->pages));
    }
  }
  return tables;
}

absl::Status CudaStepBuilder::CheckPages(const StepPlan& plan, int row) const {
  const CudaStepLimits& limits = memory_->limits();
  const int num_pages = static_cast<int>(plan.row_pages(row).size());
  if (num_pages > limits.table_stride) {
    return ResourceExhausted("a row has ", num_pages,
                             " pages, there is room for ", limits.table_stride);
  }
  const PlanSource* const source = plan.source_of(row);
  const int num_source_pages =
      source == nullptr ? 0 : static_cast<int>(source->pages->size());
  if (num_source_pages <= limits.source_stride) return absl::OkStatus();
  return ResourceExhausted("a row's source has ", num_source_pages,
                           " pages, there is room for ", limits.source_stride);
}

absl::Status CudaStepBuilder::CheckLimits(const CudaInputBatch& batch,
                                          const CudaStep& step) const {
  const CudaStepLimits& limits = memory_->limits();
  const std::pair<const char*, std::pair<int64_t, int64_t>> figures[] = {
      {"rows of logits", {batch.num_logits_rows(), limits.max_rows}},
      {"tokens", {batch.num_tokens(), limits.max_tokens}},
      {"candidates", {batch.num_candidates, limits.max_candidates}},
      {"draws", {batch.num_draws(), limits.max_rows}},
      {"copies of tail pages", {step.shape.max_copies, limits.num_slots}},
      {"best tokens to report",
       {batch.logprob_counts[0].num_best, limits.max_best_tokens}},
      {"EOS ids", {batch.eos_token_ids.size(), limits.max_eos_token_ids}},
      {"edits of scores",
       {batch.edits.size() + batch.num_device_edits, limits.max_edits}},
      {"items of attention",
       {batch.num_tokens() + NumRunQueries(batch), limits.max_items}},
      {"partial sums of attention",
       {2 * int64_t{batch.num_tokens()}, limits.max_partials}},
  };
  for (const auto& [what, figure] : figures) {
    if (figure.first <= figure.second) continue;
    return ResourceExhausted("a step has ", figure.first, " ", what,
                             ", the executor has room for ", figure.second);
  }
  return absl::OkStatus();
}

void CudaStepBuilder::PutMasks(const CudaInputBatch& batch) {
  const int num_words = NumMaskWords(shape_.vocab_size);
  for (const auto& [mask, list] : batch.new_masks) {
    std::vector<uint32_t> words(num_words);
    for (const TokenId token : list) words[token / 32] |= 1u << (token % 32);
    delta_->Put<uint32_t>(
        memory_->arrays().masks.legal + int64_t{mask} * num_words, words);
  }
}

void CudaStepBuilder::PutCopies(const StepPlan& plan) {
  const CudaBeamState& state = memory_->arrays().state;
  const int num_copies = static_cast<int>(plan.page_copies.size());
  if (num_copies > 0 || was_reset_) {
    delta_->Put<PageCopy>(state.copies, plan.page_copies);
    delta_->Put(state.num_copies, num_copies);
  }
  if (!was_reset_) return;
  // A step that ran in part leaves no start time.
  const CudaStepClock clock = {.started_ns = 0, .num_steps = num_steps_};
  const auto words =
      std::bit_cast<std::array<int, sizeof(clock) / sizeof(int)>>(clock);
  delta_->Put<int>(reinterpret_cast<const int*>(state.clock), words);
  // Nor does it leave jobs, or masks that it did not make: no step began such
  // an epoch (EndMasks), nor did another reset.
  constexpr uint32_t kResetEpochs = 1u << 31;
  delta_->Put(state.masks,
              CudaMaskCache{.epoch = kResetEpochs | ++num_resets_});
}

// Drops groups that have slots for this step only: refused groups, and groups
// with a slot for each path. Their tables stay valid until the step has run.
void CudaStepBuilder::DropPassing(const StepPlan& plan) {
  for (const Entry& entry : refused_) {
    groups_.Drop(plan.selections[entry.answer].request);
  }
  for (const Entry& entry : prompts_) {
    const PlanSelection& selection = plan.selections[entry.answer];
    if (selection.has_paths()) groups_.Drop(selection.request);
  }
}

int PaddedRows(int num_rows, int max_rows) {
  if (num_rows <= 1) return num_rows;
  const int octave =
      static_cast<int>(std::bit_floor(static_cast<unsigned>(num_rows - 1)));
  // Up to 16, padding rows are nearly free. From 32 on, these are the buckets
  // of cuBLASLt (NumBucketRows).
  const int num_sizes = octave < 16 ? 1 : (octave < 32 ? 2 : 4);
  const int unit = octave / num_sizes;
  const int padded = CeilDiv(num_rows, unit) * unit;
  return std::max(num_rows, std::min(padded, max_rows));
}

}  // namespace espalier
