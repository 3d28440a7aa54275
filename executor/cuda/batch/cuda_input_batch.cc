#include "executor/cuda/batch/cuda_input_batch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace espalier {
namespace {

template <typename T>
void ResizeLogitsRows(size_t size, std::vector<T>* array) {
  array->resize(size, InactiveEntry<T>());
}
// Arrays of a fixed size have no entries by row of logits.
template <typename T, size_t kSize>
void ResizeLogitsRows(size_t, std::array<T, kSize>*) {}

// Placeholder of a row whose edits the device builds. It is never read.
constexpr CudaRowEdits kDeviceBuilt = {.begin = -1, .end = -1};

}  // namespace

CudaRowEdits AppendEdits(const ScoreEdits::View& view,
                         const ScoreProcessors& processors,
                         std::vector<TokenEdit>* edits) {
  const int begin = static_cast<int>(edits->size());
  edits->insert(edits->end(), view.edits.begin(), view.edits.end());
  return {.begin = begin,
          .end = static_cast<int>(edits->size()),
          .repetition_penalty = processors.repetition_penalty,
          .is_allow_list = view.is_allow_list ? 1 : 0};
}

std::vector<CudaAnswerPart> CudaInputBatch::AddBeams(
    const CudaGroup& group, const CudaGroupRequest& request) {
  CHECK(prompt_tokens.empty()) << "rows of beams come before prompts";
  const int first_row = num_rows;
  AddLogitsRows(group.num_slots);
  last_edits_.reset();
  std::vector<CudaAnswerPart> parts(1);
  if (request.kind == SelectionKind::kRows) {
    // Rows are in slot order, like tokens, so their tables never change.
    std::vector<int> ranks(group.num_slots);
    for (int rank = 0; rank < group.num_slots; ++rank) {
      ranks[request.slots[rank]] = rank;
    }
    parts.resize(group.num_slots);
    for (int slot = 0; slot < group.num_slots; ++slot) {
      const int rank = ranks[slot];
      parts[rank] = AddRow(group, request, first_row + slot, rank);
    }
  } else {
    parts[0] = AddGroup(group, request,
                        {.first_logits_row = first_row,
                         .num_logits_rows = group.num_slots,
                         .first_slot = group.first_slot,
                         .num_slots = group.num_slots,
                         .num_draws = group.num_slots});
  }
  num_rows += group.num_slots;
  for (int slot = 0; slot < group.num_slots; ++slot) {
    token_tables.push_back(group.first_slot + slot);
  }
  AddAttention(group, first_row);
  AddCrossAttention({group.first_slot, group.source_length}, group.num_slots);
  return parts;
}

CudaAnswerPart CudaInputBatch::AddRow(const CudaGroup& group,
                                      const CudaGroupRequest& request,
                                      int logits_row, int rank) {
  return AddGroup(group, request,
                  {.first_logits_row = logits_row,
                   .first_rank = rank,
                   .first_slot = group.first_slot + request.slots[rank]});
}

void CudaInputBatch::AddLogitsRows(int count) {
  const size_t size = row_groups.size() + count;
  ForEachBatchArray(
      [&](const CudaArrayInfo& info, auto& array) {
        if (info.by_logits_row && HasReaders(info.readers))
          ResizeLogitsRows(size, &array);
      },
      *this);
}

void CudaInputBatch::AddReaders(CudaArrayReaders readers) {
  if (HasReaders(readers)) return;
  readers_ |= 1u << static_cast<int>(readers);
  ForEachBatchArray(
      [&](const CudaArrayInfo& info, auto& array) {
        if (info.by_logits_row && info.readers == readers) {
          ResizeLogitsRows(row_groups.size(), &array);
        }
      },
      *this);
}

CudaAnswerPart CudaInputBatch::AddGroup(const CudaGroup& group,
                                        const CudaGroupRequest& request,
                                        const LogitsRows& logits_rows) {
  const bool draws = request.kind == SelectionKind::kDraws;
  CudaAnswerPart part = {num_groups(), num_candidates, logits_rows.first_rank};
  const int m =
      draws ? logits_rows.num_draws
            : static_cast<int>(std::min<int64_t>(
                  request.num_candidates,
                  int64_t{logits_rows.num_logits_rows} * shape.vocab_size));
  // A group without slots keeps no beams, and the host chooses those of rows.
  const bool keeps_beams =
      logits_rows.num_slots > 0 && request.kind != SelectionKind::kRows;
  const int num_eos =
      keeps_beams ? static_cast<int>(group.eos_token_ids.size()) : 0;
  selections.push_back({.first_row = logits_rows.first_logits_row,
                        .num_rows = logits_rows.num_logits_rows,
                        .num_candidates = draws ? 0 : m,
                        .first_candidate = num_candidates,
                        .domain = request.params->domain});
  groups.push_back(
      {.first_slot = logits_rows.first_slot,
       .num_slots = logits_rows.num_slots,
       .num_shared_pages = group.num_shared_pages,
       .first_eos = static_cast<int>(eos_token_ids.size()),
       .num_eos = num_eos,
       .has_constraint = keeps_beams && request.constraint >= 0 ? 1 : 0});
  if (request.may_lack) groups.back().max_candidates = request.num_candidates;
  eos_token_ids.insert(eos_token_ids.end(), group.eos_token_ids.begin(),
                       group.eos_token_ids.begin() + num_eos);
  gumbel_selections.push_back(selections.back());
  gumbel_selections.back().num_candidates = 0;
  if (draws) AddDraws(group, request, logits_rows);
  if (request.gumbel_top_k) AddGumbelTopK(request, logits_rows);
  if (request.params->num_logprobs >= 0) {
    AddReaders(CudaArrayReaders::kWithLogprobs);
    part.log_probs =
        log_probs.AskGroup({.first_row = logits_rows.first_logits_row,
                            .num_rows = logits_rows.num_logits_rows,
                            .first_candidate = num_candidates,
                            .num_candidates = m},
                           request.params->num_logprobs, this);
  }
  num_candidates += m;
  ++group_count[0];
  std::fill_n(row_groups.begin() + logits_rows.first_logits_row,
              logits_rows.num_logits_rows, part.group_idx);
  if (selections.back().num_candidates > 0) {
    max_candidates = std::max(max_candidates, m);
    max_group_rows = std::max(max_group_rows, logits_rows.num_logits_rows);
    std::fill_n(select_row_groups.begin() + logits_rows.first_logits_row,
                logits_rows.num_logits_rows, part.group_idx);
  }
  AddEdits(group, request, logits_rows);
  AddEditedRows(group, request, logits_rows);
  if (request.constraint >= 0) AddMasks(group, request, logits_rows);
  return part;
}

void CudaInputBatch::AddDraws(const CudaGroup& group,
                              const CudaGroupRequest& request,
                              const LogitsRows& logits_rows) {
  AddReaders(CudaArrayReaders::kWithDraws);
  if (request.drafts.empty()) {
    std::fill_n(row_params.begin() + logits_rows.first_logits_row,
                logits_rows.num_logits_rows, static_cast<int>(params.size()));
    num_sampled += logits_rows.num_draws;
  }
  params.push_back(request.params->sampling);
  groups.back().first_draw = num_draws();
  groups.back().num_draws = logits_rows.num_draws;
  groups.back().num_prompt_tokens = group.position + 1 - request.num_generated;
  draw_count[0] += logits_rows.num_draws;
}

// Moves the last group's row from CudaSelect to Gumbel top-k.
void CudaInputBatch::AddGumbelTopK(const CudaGroupRequest& request,
                                   const LogitsRows& logits_rows) {
  AddReaders(CudaArrayReaders::kWithGumbelTopK);
  const int m = std::exchange(selections.back().num_candidates, 0);
  gumbel_selections.back().num_candidates = m;
  gumbel_rows[logits_rows.first_logits_row] = {
      .domain = request.params->domain,
      .rank = static_cast<uint32_t>(logits_rows.first_rank),
      .position = static_cast<uint32_t>(request.num_generated)};
  gumbel_params[logits_rows.first_logits_row] = static_cast<int>(params.size());
  params.push_back(request.params->sampling);
  max_gumbel_top_k = std::max(max_gumbel_top_k, m);
}

void CudaInputBatch::AddAttention(const CudaGroup& group, int first_row) {
  const bool shares = group.num_slots > 1 && group.num_shared_pages > 0;
  const int kv_begin = shares ? group.num_shared_pages * shape.page_size : 0;
  if (shares) {
    shared_runs.push_back({.first_query = first_row,
                           .num_queries = group.num_slots,
                           .table = group.first_slot,
                           .kv_end = kv_begin});
  }
  const int bound = PlannedPositions(group.position);
  for (int slot = 0; slot < group.num_slots; ++slot) {
    attention_rows.push_back(
        {.first_query = first_row + slot,
         .num_queries = 1,
         .table = group.first_slot + slot,
         .kv_begin = kv_begin,
         .max_positions = std::min(bound, shape.max_positions)});
  }
}

// Each token attends to the complete source. The work changes only when groups
// join or leave.
void CudaInputBatch::AddCrossAttention(const CudaTokenSource& source,
                                       int num_queries) {
  if (source.length == 0) return;
  AddReaders(CudaArrayReaders::kWithSources);
  const int first_query = num_tokens() - num_queries;
  cross_positions.resize(first_query, -1);
  cross_positions.resize(num_tokens(), source.length - 1);
  if (!cross_rows.empty()) {
    CudaAttentionRow& last = cross_rows.back();
    if (last.table == source.table &&
        last.first_query + last.num_queries == first_query) {
      last.num_queries += num_queries;
      return;
    }
  }
  cross_rows.push_back({.first_query = first_query,
                        .num_queries = num_queries,
                        .table = source.table,
                        .max_positions = source.length,
                        .sees_all = 1,
                        .is_complete = 1});
}

int CudaInputBatch::AddPrompt(std::span<const TokenId> tokens,
                              int first_position, int table,
                              const CudaTokenSource& source, int num_ahead) {
  const int num_new_tokens = static_cast<int>(tokens.size());
  int max_positions = first_position + num_new_tokens;
  if (num_ahead > 0) {
    max_positions = std::min(max_positions + num_ahead, shape.max_positions);
  }
  attention_rows.push_back({.first_query = num_tokens(),
                            .num_queries = num_new_tokens,
                            .table = table,
                            .max_positions = max_positions});
  prompt_tokens.insert(prompt_tokens.end(), tokens.begin(), tokens.end());
  for (int i = 0; i < num_new_tokens; ++i) {
    prompt_positions.push_back(first_position + i);
  }
  token_tables.insert(token_tables.end(), num_new_tokens, table);
  AddCrossAttention(source, num_new_tokens);
  return num_tokens() - 1;
}

void CudaInputBatch::SharePages(int first_token, int num_tokens, int kv_end) {
  const auto first = std::ranges::lower_bound(attention_rows, first_token, {},
                                              &CudaAttentionRow::first_query);
  shared_runs.push_back({.first_query = first_token,
                         .num_queries = num_tokens,
                         .table = first->table,
                         .kv_end = kv_end});
  for (auto row = first; num_tokens > 0; ++row) {
    row->kv_begin = kv_end;
    num_tokens -= row->num_queries;
  }
}

std::vector<CudaAnswerPart> CudaInputBatch::AddPromptLogitsRows(
    const CudaGroup& group, const CudaGroupRequest& request,
    std::span<const int> last_tokens, std::span<const float> cum_log_probs) {
  const int num_new_rows = static_cast<int>(last_tokens.size());
  const int first_logits_row = num_logits_rows();
  AddLogitsRows(num_new_rows);
  last_edits_.reset();
  prompt_logits_tokens.insert(prompt_logits_tokens.end(), last_tokens.begin(),
                              last_tokens.end());
  prompt_cum_log_probs.insert(prompt_cum_log_probs.end(), cum_log_probs.begin(),
                              cum_log_probs.end());
  const bool differ = !request.logits_rows.empty();
  std::vector<CudaAnswerPart> parts;
  if (request.kind == SelectionKind::kRows) {
    for (int rank = 0; rank < num_new_rows; ++rank) {
      parts.push_back(AddRow(group, request, first_logits_row + rank, rank));
    }
    return parts;
  }
  if (request.kind == SelectionKind::kBeams && differ) {
    CudaGroupRequest of_row = request;
    for (int i = 0; i < num_new_rows; ++i) {
      of_row.logits_rows = request.logits_rows.subspan(i, 1);
      parts.push_back(AddGroup(group, of_row,
                               {.first_logits_row = first_logits_row + i,
                                .first_rank = i,
                                .first_slot = group.first_slot,
                                .num_slots = 0}));
    }
    return parts;
  }
  parts.push_back(AddGroup(
      group, request,
      {.first_logits_row = first_logits_row,
       .num_logits_rows = num_new_rows,
       .first_slot = group.first_slot,
       .num_slots = differ ? 0 : group.num_slots,
       .num_draws =
           differ ? num_new_rows : static_cast<int>(request.samples.size())}));
  if (request.kind == SelectionKind::kDraws) {
    AddPromptDraws(request, first_logits_row, num_new_rows,
                   parts[0].first_candidate);
  }
  if (!request.drafts.empty()) {
    AddVerified(request, first_logits_row, parts[0].first_candidate);
  }
  return parts;
}

void CudaInputBatch::AddPromptDraws(const CudaGroupRequest& request,
                                    int first_logits_row, int num_logits_rows,
                                    int first_candidate) {
  for (int i = 0; i < std::ssize(request.logits_rows); ++i) {
    prompt_draws.push_back(
        {.row = first_logits_row + i,
         .candidate = first_candidate + i,
         .beam = i,
         .sample = static_cast<uint32_t>(request.logits_rows[i].sample),
         .position =
             static_cast<uint32_t>(request.logits_rows[i].num_generated)});
  }
  if (!request.logits_rows.empty()) return;
  for (int i = 0; i < std::ssize(request.samples); ++i) {
    const int rank = num_logits_rows == 1 ? 0 : i;
    prompt_draws.push_back(
        {.row = first_logits_row + rank,
         .candidate = first_candidate + i,
         .beam = rank,
         .sample = static_cast<uint32_t>(request.samples[i]),
         .position = static_cast<uint32_t>(request.num_generated)});
  }
}

// The draft model applies the row's edits, but neither its list of allowed
// tokens nor its mask.
void CudaInputBatch::AddVerified(const CudaGroupRequest& request,
                                 int first_logits_row, int first_candidate) {
  AddReaders(CudaArrayReaders::kWithVerified);
  const std::shared_ptr<const ScoreEdits> all = EditsOf(*request.params);
  const auto edits_of_draft = [&](int i) {
    const SelectionRow& row = request.logits_rows[i];
    if (row.allowed == nullptr) {
      CudaRowEdits of_draft;
      if (has_edits()) of_draft = row_edits[first_logits_row + i];
      of_draft.mask = -1;
      return of_draft;
    }
    std::vector<TokenEdit> storage;
    return AddView(request, all->OfRow({.tail = row.history(),
                                        .num_generated = row.num_generated,
                                        .vocab_size = shape.vocab_size},
                                       &storage));
  };
  verified.Add({.logits_rows = request.logits_rows,
                .drafts = request.drafts,
                .has_draft_rows = request.has_draft_rows,
                .has_filters = HasFilters(request.params->sampling),
                .first_logits_row = first_logits_row,
                .first_candidate = first_candidate,
                .params = static_cast<int>(params.size()) - 1},
               edits_of_draft, this);
}

void CudaInputBatch::PlaceDraftRows(int padded_rows) {
  verified.PlaceRows(num_logits_rows(), padded_rows, this);
}

CudaLogprobPlace CudaInputBatch::AddPromptLogprobRows(
    int first_token, std::span<const TokenId> next, int num_logprobs,
    int num_text_tokens) {
  const int first_logits_row = num_logits_rows();
  AddLogitsRows(static_cast<int>(next.size()));
  for (size_t i = 0; i < next.size(); ++i) {
    prompt_logits_tokens.push_back(first_token + static_cast<int>(i));
  }
  prompt_cum_log_probs.resize(prompt_logits_tokens.size());
  AddReaders(CudaArrayReaders::kWithLogprobs);
  return log_probs.AskKnown(first_logits_row, next, num_logprobs,
                            num_text_tokens, this);
}

void CudaInputBatch::Pad(int padded_rows, int padding_table) {
  CHECK(prompt_tokens.empty()) << "rows of beams come before prompts";
  AddLogitsRows(padded_rows - num_rows);
  num_rows = padded_rows;
  PadTokens(padded_rows, padding_table);
}

void CudaInputBatch::PadTokens(int size, int padding_table) {
  token_tables.resize(size, padding_table);
  if (HasReaders(CudaArrayReaders::kWithSources)) {
    cross_positions.resize(size, -1);
  }
}

void CudaInputBatch::PadPrompts(int padded_tokens, int padding_table) {
  CHECK_EQ(num_tokens(), num_logits_rows())
      << "tokens with a row of logits each";
  const int num_new = padded_tokens - num_tokens();
  AddLogitsRows(num_new);
  for (int token = num_tokens(); token < padded_tokens; ++token) {
    prompt_logits_tokens.push_back(token);
  }
  // These match the padding rows that the device writes.
  prompt_tokens.resize(prompt_tokens.size() + num_new, 0);
  prompt_positions.resize(prompt_positions.size() + num_new, 0);
  prompt_cum_log_probs.resize(prompt_cum_log_probs.size() + num_new,
                              -std::numeric_limits<float>::infinity());
  PadTokens(padded_tokens, padding_table);
}

CudaRowEdits CudaInputBatch::AddView(const CudaGroupRequest& request,
                                     const ScoreEdits::View& view) {
  return AppendEdits(view, request.params->processors, &edits);
}

// All rows of logits of a request share one list if edits depend neither on
// histories, which the rule of timestamps needs too, nor on lists of allowed
// tokens.
CudaRowEdits CudaInputBatch::AddList(const CudaGroupRequest& request,
                                     int rank) {
  const bool has_list =
      !request.allowed.empty() && !IsMasked(request.allowed[rank]);
  const bool is_shared =
      !request.params->processors.needs_history() && !has_list;
  CudaRowEdits list;
  if (is_shared && last_edits_.has_value()) {
    list = *last_edits_;
  } else {
    ScoreEdits::Row row = {.num_generated = request.num_generated,
                           .vocab_size = shape.vocab_size};
    if (!request.histories.empty()) row.tail = request.histories[rank];
    if (has_list) row.allowed = &request.allowed[rank];
    std::vector<TokenEdit> storage;
    list = AddView(request, EditsOf(*request.params)->OfRow(row, &storage));
    if (is_shared) last_edits_ = list;
  }
  return list;
}

void CudaInputBatch::AddMasks(const CudaGroup& group,
                              const CudaGroupRequest& request,
                              const LogitsRows& logits_rows) {
  AddReaders(CudaArrayReaders::kWithEdits);
  AddReaders(CudaArrayReaders::kWithMasks);
  const auto& tables = request.params->constraint;
  const bool has_items = tables.has_value() && tables->has_items();
  const bool has_stacks = tables.has_value() && tables->has_stacks();
  has_items_ |= has_items;
  has_stacks_ |= has_stacks;
  has_states_ |= !has_items && !has_stacks;
  for (int i = 0; i < logits_rows.num_logits_rows; ++i) {
    const int rank = logits_rows.first_rank + i;
    CudaMaskRow row = {.constraint = request.constraint,
                       .beam = group.first_slot + rank,
                       .room = group.end_position};
    if (!request.places.empty()) {
      const auto& [state, room] = request.logits_rows.empty()
                                      ? request.places[rank]
                                      : *request.logits_rows[i].place;
      row = {.constraint = request.constraint, .state = state, .room = room};
      if (has_stacks) {
        row.frame = static_cast<int>(mask_frames.size());
        AddPlace(tables->stacks.places, state);
      }
    }
    const int logits_row = logits_rows.first_logits_row + i;
    mask_rows[logits_row] = row;
    row_edits[logits_row].mask = logits_row;  // until the device finds another
  }
}

void CudaInputBatch::AddPlace(const PushdownPlaces* places, int32_t state) {
  PushdownPlace place;
  places->Find(state, &place);
  mask_frames.push_back({place.state, place.count, place.height, 0});
  mask_frames.insert(mask_frames.end(), place.frames,
                     place.frames + place.height);
}

void CudaInputBatch::SetListMask(const CudaGroupRequest& request,
                                 std::span<const TokenId> list,
                                 int logits_row) {
  AddReaders(CudaArrayReaders::kWithEdits);
  AddReaders(CudaArrayReaders::kWithMasks);
  const CudaListMasks::Slot slot =
      list_masks_->Take(request.params->allowed_owner, list);
  const int mask = shape.first_list_mask + slot.index;
  row_edits[logits_row].mask = mask;
  if (slot.is_new) new_masks.push_back({mask, list});
}

// Rows of logits without a beam have no edits.
void CudaInputBatch::AddEdits(const CudaGroup& group,
                              const CudaGroupRequest& request,
                              const LogitsRows& logits_rows) {
  if (!request.logits_rows.empty())
    return AddRowEdits(request, logits_rows.first_logits_row);
  const int num_lists = static_cast<int>(
      std::max(request.histories.size(), request.allowed.size()));
  if (num_lists > 0) {
    const int end = std::min(
        logits_rows.first_rank + logits_rows.num_logits_rows, num_lists);
    for (int rank = logits_rows.first_rank; rank < end; ++rank) {
      const int logits_row =
          logits_rows.first_logits_row + rank - logits_rows.first_rank;
      SetEdits(logits_row, 1, AddList(request, rank));
      if (request.allowed.empty() || !IsMasked(request.allowed[rank])) continue;
      SetListMask(request, request.allowed[rank], logits_row);
    }
    return;
  }
  if (request.params->processors.needs_history() &&
      !EditsOf(*request.params)->is_forced(request.num_generated)) {
    return AddDeviceEdits(group, request, logits_rows);
  }
  SetEdits(logits_rows.first_logits_row, logits_rows.num_logits_rows,
           AddList(request, 0));
}

// Requests with draft paths call this once per row of logits.
void CudaInputBatch::AddRowEdits(const CudaGroupRequest& request,
                                 int first_logits_row) {
  const std::shared_ptr<const ScoreEdits> all = EditsOf(*request.params);
  for (int i = 0; i < std::ssize(request.logits_rows); ++i) {
    const std::span<const TokenId>* const list = request.logits_rows[i].allowed;
    const bool is_masked = list != nullptr && IsMasked(*list);
    const ScoreEdits::Row row = {
        .tail = request.logits_rows[i].history(),
        .num_generated = request.logits_rows[i].num_generated,
        .vocab_size = shape.vocab_size,
        .allowed = is_masked ? nullptr : list};
    std::vector<TokenEdit> storage;
    const ScoreEdits::View view = all->OfRow(row, &storage);
    if (!last_edits_.has_value() ||
        view.is_allow_list != (last_edits_->is_allow_list != 0) ||
        !std::ranges::equal(
            view.edits,
            std::span(edits).subspan(last_edits_->begin,
                                     last_edits_->end - last_edits_->begin))) {
      last_edits_ = AddView(request, view);
    }
    SetEdits(first_logits_row + i, 1, *last_edits_);
    if (is_masked) SetListMask(request, *list, first_logits_row + i);
  }
}

void CudaInputBatch::SetEdits(int first_logits_row, int count,
                              const CudaRowEdits& of_rows) {
  if (of_rows.begin == of_rows.end && of_rows.is_allow_list == 0) return;
  AddReaders(CudaArrayReaders::kWithEdits);
  std::fill_n(row_edits.begin() + first_logits_row, count, of_rows);
}

// Reserves a list for every row of logits, since any of them may have a beam.
void CudaInputBatch::AddDeviceEdits(const CudaGroup& group,
                                    const CudaGroupRequest& request,
                                    const LogitsRows& logits_rows) {
  AddReaders(CudaArrayReaders::kWithEdits);
  AddReaders(CudaArrayReaders::kWithDeviceEdits);
  std::fill_n(row_edits.begin() + logits_rows.first_logits_row,
              logits_rows.num_logits_rows, kDeviceBuilt);
  const int params_idx = static_cast<int>(edit_params.size());
  edit_params.push_back(AddEditParams(group, request));
  const int room = static_cast<int>(MaxEdits(request.params->processors,
                                             PlannedPositions(group.position),
                                             shape.vocab_size));
  for (int i = 0; i < logits_rows.num_logits_rows; ++i) {
    num_device_edits += room;
    edit_rows[logits_rows.first_logits_row + i] = {
        .params = params_idx,
        .begin = static_cast<int>(shape.max_edits - num_device_edits)};
  }
}

CudaEditParams CudaInputBatch::AddEditParams(const CudaGroup& group,
                                             const CudaGroupRequest& request) {
  const ScoreProcessors& processors = request.params->processors;
  const std::shared_ptr<const ScoreEdits> all = EditsOf(*request.params);
  std::vector<TokenEdit> storage;
  const CudaRowEdits common = AddView(
      request,
      all->WithoutText(request.num_generated, shape.vocab_size, &storage));
  for (const std::vector<TokenId>& word : processors.bad_words) {
    if (word.size() == 1) continue;  // does not depend on the history
    for (const TokenId token : word) edits.push_back({.token = token});
    edits.back().banned = true;
  }
  return {.common_begin = common.begin,
          .common_end = common.end,
          .words_begin = common.end,
          .words_end = static_cast<int>(edits.size()),
          .num_prompt_tokens = group.position + 1 - request.num_generated,
          .repetition_penalty = processors.repetition_penalty,
          .frequency_penalty = processors.frequency_penalty,
          .presence_penalty = processors.presence_penalty,
          .no_repeat_ngram_size = processors.no_repeat_ngram_size,
          .is_allow_list = common.is_allow_list};
}

// Beams that the host chooses are normalised there, if at all.
void CudaInputBatch::AddEditedRows(const CudaGroup& group,
                                   const CudaGroupRequest& request,
                                   const LogitsRows& logits_rows) {
  const ScoreProcessors& processors = request.params->processors;
  const bool has_rule = processors.timestamps.has_value();
  const bool has_own = has_rule || (processors.renormalizes && has_edits());
  if (!has_own || request.kind == SelectionKind::kRows) return;
  AddReaders(CudaArrayReaders::kWithEditedRows);
  CudaEditedRow row = {.num_prompt_tokens = 0};  // bans need none
  if (has_rule) {
    row = {.num_prompt_tokens = group.position + 1 - request.num_generated,
           .rule = static_cast<int>(rules.size())};
    rules.push_back(*processors.timestamps);
  }
  std::fill_n(edited_rows.begin() + logits_rows.first_logits_row,
              logits_rows.num_logits_rows, row);
}

}  // namespace espalier
