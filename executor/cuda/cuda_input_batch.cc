#include "executor/cuda/cuda_input_batch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

// Of a row whose edits the device makes: nobody reads it.
constexpr CudaRowEdits kDeviceBuilt = {.begin = -1, .end = -1};

int PlannedPositions(int position) {
  return (position / kPlannedPositions + 1) * kPlannedPositions;
}

template <typename T>
void ResizeLines(size_t size, std::vector<T>* array) {
  array->resize(size, InactiveEntry<T>());
}
// Arrays of a fixed size have no entries by line.
template <typename T, size_t kSize>
void ResizeLines(size_t, std::array<T, kSize>*) {}

}  // namespace

std::vector<CudaAnswerPart> CudaInputBatch::AddBeams(
    const CudaGroup& group, const CudaGroupRequest& request) {
  CHECK(prompt_tokens.empty()) << "rows of beams come before prompts";
  const int first_row = num_rows;
  AddLines(group.num_slots);
  common_edits_.reset();
  std::vector<CudaAnswerPart> parts(1);
  if (request.rule->kind == SelectionKind::kRows) {
    // In the order of slots, as tokens are: tables of rows then stay the same.
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
                        {.first_line = first_row,
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
  return parts;
}

CudaAnswerPart CudaInputBatch::AddRow(const CudaGroup& group,
                                      const CudaGroupRequest& request, int line,
                                      int rank) {
  return AddGroup(group, request,
                  {.first_line = line,
                   .first_rank = rank,
                   .first_slot = group.first_slot + request.slots[rank]});
}

void CudaInputBatch::AddLines(int count) {
  const size_t size = row_groups.size() + count;
  ForEachBatchArray(
      [&](const CudaArrayInfo& info, auto& array) {
        if (info.by_line && HasReaders(info.readers)) ResizeLines(size, &array);
      },
      *this);
}

void CudaInputBatch::AddReaders(CudaArrayReaders readers) {
  if (HasReaders(readers)) return;
  readers_ |= 1u << static_cast<int>(readers);
  ForEachBatchArray(
      [&](const CudaArrayInfo& info, auto& array) {
        if (info.by_line && info.readers == readers) {
          ResizeLines(row_groups.size(), &array);
        }
      },
      *this);
}

CudaAnswerPart CudaInputBatch::AddGroup(const CudaGroup& group,
                                        const CudaGroupRequest& request,
                                        const Lines& lines) {
  const bool draws = request.rule->kind == SelectionKind::kDraws;
  CudaAnswerPart part = {num_groups(), num_candidates, lines.first_rank};
  const int m = draws ? lines.num_draws
                      : static_cast<int>(std::min<int64_t>(
                            request.num_candidates,
                            int64_t{lines.num_logits_rows} * shape.vocab_size));
  selections.push_back({.first_row = lines.first_line,
                        .num_rows = lines.num_logits_rows,
                        .num_candidates = draws ? 0 : m,
                        .first_candidate = num_candidates,
                        .domain = request.rule->domain});
  groups.push_back({.first_slot = lines.first_slot,
                    .num_slots = lines.num_slots,
                    .num_shared_pages = group.num_shared_pages,
                    .first_eos = static_cast<int>(eos_token_ids.size()),
                    .num_eos = static_cast<int>(group.eos_token_ids.size())});
  eos_token_ids.insert(eos_token_ids.end(), group.eos_token_ids.begin(),
                       group.eos_token_ids.end());
  perturbed_selections.push_back(selections.back());
  perturbed_selections.back().num_candidates = 0;
  if (draws) AddDraws(group, request, lines);
  if (request.rule->gumbel_top_k) AddPerturbed(request, lines);
  if (request.rule->num_logprobs >= 0) {
    AddReaders(CudaArrayReaders::kWithLogProbs);
    part.log_probs = log_probs.AskGroup({.first_row = lines.first_line,
                                         .num_rows = lines.num_logits_rows,
                                         .first_candidate = num_candidates,
                                         .num_candidates = m},
                                        request.rule->num_logprobs, this);
  }
  num_candidates += m;
  ++group_count[0];
  std::fill_n(row_groups.begin() + lines.first_line, lines.num_logits_rows,
              part.group_idx);
  if (selections.back().num_candidates > 0) {
    max_candidates = std::max(max_candidates, m);
    max_group_rows = std::max(max_group_rows, lines.num_logits_rows);
    std::fill_n(select_row_groups.begin() + lines.first_line,
                lines.num_logits_rows, part.group_idx);
  }
  AddEdits(group, request, lines);
  return part;
}

void CudaInputBatch::AddDraws(const CudaGroup& group,
                              const CudaGroupRequest& request,
                              const Lines& lines) {
  AddReaders(CudaArrayReaders::kWithDraws);
  std::fill_n(row_params.begin() + lines.first_line, lines.num_logits_rows,
              static_cast<int>(params.size()));
  params.push_back(request.rule->sampling);
  groups.back().first_draw = num_draws();
  groups.back().num_draws = lines.num_draws;
  groups.back().num_prompt_tokens = group.position + 1 - request.num_generated;
  draw_count[0] += lines.num_draws;
}

// The row of the last group is not selected for, but perturbed.
void CudaInputBatch::AddPerturbed(const CudaGroupRequest& request,
                                  const Lines& lines) {
  AddReaders(CudaArrayReaders::kWithPerturbed);
  const int m = std::exchange(selections.back().num_candidates, 0);
  perturbed_selections.back().num_candidates = m;
  perturbed_rows[lines.first_line] = {
      .domain = request.rule->domain,
      .rank = static_cast<uint32_t>(lines.first_rank),
      .position = static_cast<uint32_t>(request.num_generated)};
  perturbed_params[lines.first_line] = static_cast<int>(params.size());
  params.push_back(request.rule->sampling);
  max_perturbed = std::max(max_perturbed, m);
}

CudaRowEdits CudaInputBatch::AddView(const CudaGroupRequest& request,
                                     const ScoreEdits::View& view) {
  const int begin = static_cast<int>(edits.size());
  edits.insert(edits.end(), view.edits.begin(), view.edits.end());
  return {.begin = begin,
          .end = static_cast<int>(edits.size()),
          .repetition_penalty = request.rule->processors.repetition_penalty,
          .is_allow_list = view.is_allow_list ? 1 : 0};
}

CudaRowEdits CudaInputBatch::AddList(const CudaGroupRequest& request,
                                     int rank) {
  ScoreEdits::Row row = {.num_generated = request.num_generated,
                         .vocab_size = shape.vocab_size};
  if (!request.histories.empty()) row.tail = request.histories[rank];
  if (!request.allowed.empty()) row.allowed = &request.allowed[rank];
  std::vector<TokenEdit> storage;
  return AddView(request, EditsOf(*request.rule)->OfRow(row, &storage));
}

// Where they depend on no history, nor on what is allowed in its place, all
// lines of a request share one list. Lines without a beam have none.
void CudaInputBatch::AddEdits(const CudaGroup& group,
                              const CudaGroupRequest& request,
                              const Lines& lines) {
  if (!request.lines.empty()) return AddLineEdits(request, lines.first_line);
  const int num_lists = static_cast<int>(
      std::max(request.histories.size(), request.allowed.size()));
  if (num_lists > 0) {
    const int end =
        std::min(lines.first_rank + lines.num_logits_rows, num_lists);
    for (int rank = lines.first_rank; rank < end; ++rank) {
      SetEdits(lines.first_line + rank - lines.first_rank, 1,
               AddList(request, rank));
    }
    return;
  }
  if (request.rule->processors.needs_history()) {
    return AddDeviceEdits(group, request, lines);
  }
  if (!common_edits_.has_value()) common_edits_ = AddList(request, 0);
  SetEdits(lines.first_line, lines.num_logits_rows, *common_edits_);
}

void CudaInputBatch::AddLineEdits(const CudaGroupRequest& request,
                                  int first_line) {
  const std::shared_ptr<const ScoreEdits> all = EditsOf(*request.rule);
  CudaRowEdits last;
  for (int i = 0; i < std::ssize(request.lines); ++i) {
    const ScoreEdits::Row row = {
        .tail = request.lines[i].history,
        .num_generated = request.lines[i].num_generated,
        .vocab_size = shape.vocab_size,
        .allowed = request.lines[i].allowed};
    std::vector<TokenEdit> storage;
    const ScoreEdits::View view = all->OfRow(row, &storage);
    const auto before =
        std::span(edits).subspan(last.begin, last.end - last.begin);
    if (i == 0 || view.is_allow_list != (last.is_allow_list != 0) ||
        !std::ranges::equal(view.edits, before)) {
      last = AddView(request, view);
    }
    SetEdits(first_line + i, 1, last);
  }
}

void CudaInputBatch::SetEdits(int first_line, int count,
                              const CudaRowEdits& of_rows) {
  if (of_rows.begin == of_rows.end && of_rows.is_allow_list == 0) return;
  AddReaders(CudaArrayReaders::kWithEdits);
  std::fill_n(row_edits.begin() + first_line, count, of_rows);
}

// Any line may have a beam.
void CudaInputBatch::AddDeviceEdits(const CudaGroup& group,
                                    const CudaGroupRequest& request,
                                    const Lines& lines) {
  AddReaders(CudaArrayReaders::kWithEdits);
  AddReaders(CudaArrayReaders::kWithDeviceEdits);
  std::fill_n(row_edits.begin() + lines.first_line, lines.num_logits_rows,
              kDeviceBuilt);
  const int rule = static_cast<int>(edit_rules.size());
  edit_rules.push_back(AddRule(group, request));
  const int room = static_cast<int>(MaxEdits(request.rule->processors,
                                             PlannedPositions(group.position),
                                             shape.vocab_size));
  for (int i = 0; i < lines.num_logits_rows; ++i) {
    num_device_edits += room;
    edit_rows[lines.first_line + i] = {
        .rule = rule,
        .begin = static_cast<int>(shape.max_edits - num_device_edits)};
  }
}

CudaEditRule CudaInputBatch::AddRule(const CudaGroup& group,
                                     const CudaGroupRequest& request) {
  const ScoreProcessors& processors = request.rule->processors;
  const std::shared_ptr<const ScoreEdits> all = EditsOf(*request.rule);
  const CudaRowEdits common = AddView(
      request, all->WithoutText(request.num_generated, shape.vocab_size));
  for (const std::vector<TokenId>& word : processors.bad_words) {
    if (word.size() == 1) continue;  // not of the history
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

int CudaInputBatch::AddPrompt(std::span<const TokenId> tokens,
                              int first_position, int table) {
  const int num_new_tokens = static_cast<int>(tokens.size());
  attention_rows.push_back({.first_query = num_tokens(),
                            .num_queries = num_new_tokens,
                            .table = table,
                            .max_positions = first_position + num_new_tokens});
  prompt_tokens.insert(prompt_tokens.end(), tokens.begin(), tokens.end());
  for (int i = 0; i < num_new_tokens; ++i) {
    prompt_positions.push_back(first_position + i);
  }
  token_tables.insert(token_tables.end(), num_new_tokens, table);
  return num_tokens() - 1;
}

std::vector<CudaAnswerPart> CudaInputBatch::AddPromptLines(
    const CudaGroup& group, const CudaGroupRequest& request,
    std::span<const int> last_tokens, std::span<const float> cum_log_probs) {
  const int num_new_lines = static_cast<int>(last_tokens.size());
  const int first_line = num_logits_rows();
  AddLines(num_new_lines);
  common_edits_.reset();
  prompt_logits_tokens.insert(prompt_logits_tokens.end(), last_tokens.begin(),
                              last_tokens.end());
  prompt_cum_log_probs.insert(prompt_cum_log_probs.end(), cum_log_probs.begin(),
                              cum_log_probs.end());
  const bool differ = !request.lines.empty();
  std::vector<CudaAnswerPart> parts;
  if (request.rule->kind == SelectionKind::kRows) {
    for (int rank = 0; rank < num_new_lines; ++rank) {
      parts.push_back(AddRow(group, request, first_line + rank, rank));
    }
    return parts;
  }
  parts.push_back(AddGroup(
      group, request,
      {.first_line = first_line,
       .num_logits_rows = num_new_lines,
       .first_slot = group.first_slot,
       .num_slots = differ ? 0 : group.num_slots,
       .num_draws =
           differ ? num_new_lines : static_cast<int>(request.samples.size())}));
  if (request.rule->kind == SelectionKind::kDraws) {
    AddPromptDraws(request, first_line, num_new_lines,
                   parts[0].first_candidate);
  }
  return parts;
}

void CudaInputBatch::AddPromptDraws(const CudaGroupRequest& request,
                                    int first_line, int num_logits_rows,
                                    int first_candidate) {
  for (int i = 0; i < std::ssize(request.lines); ++i) {
    prompt_draws.push_back(
        {.row = first_line + i,
         .candidate = first_candidate + i,
         .beam = i,
         .sample = static_cast<uint32_t>(request.lines[i].sample),
         .position = static_cast<uint32_t>(request.lines[i].num_generated)});
  }
  if (!request.lines.empty()) return;
  for (int i = 0; i < std::ssize(request.samples); ++i) {
    const int rank = num_logits_rows == 1 ? 0 : i;
    prompt_draws.push_back(
        {.row = first_line + rank,
         .candidate = first_candidate + i,
         .beam = rank,
         .sample = static_cast<uint32_t>(request.samples[i]),
         .position = static_cast<uint32_t>(request.num_generated)});
  }
}

CudaLogProbPlace CudaInputBatch::AddPromptLogprobRows(
    int first_token, std::span<const TokenId> next, int num_logprobs) {
  const int first_line = num_logits_rows();
  AddLines(static_cast<int>(next.size()));
  for (size_t i = 0; i < next.size(); ++i) {
    prompt_logits_tokens.push_back(first_token + static_cast<int>(i));
  }
  prompt_cum_log_probs.resize(prompt_logits_tokens.size());
  AddReaders(CudaArrayReaders::kWithLogProbs);
  return log_probs.AskKnown(first_line, next, num_logprobs, this);
}

void CudaInputBatch::Pad(int padded_rows, int padding_table) {
  CHECK(prompt_tokens.empty()) << "a batch with prompts needs no padding";
  AddLines(padded_rows - num_rows);
  num_rows = padded_rows;
  token_tables.resize(padded_rows, padding_table);
}

}  // namespace espalier
