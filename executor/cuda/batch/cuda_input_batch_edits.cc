// Score edits of a batch: lists that rows of logits share or have of their own,
// and lists that the device builds from histories.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "executor/cuda/batch/cuda_input_batch.h"

namespace espalier {
namespace {

// Placeholder of a row whose edits the device builds. It is never read.
constexpr CudaRowEdits kDeviceBuilt = {.begin = -1, .end = -1};

}  // namespace

CudaRowEdits CudaInputBatch::AddView(const CudaGroupRequest& request,
                                     const ScoreEdits::View& view) {
  const int begin = static_cast<int>(edits.size());
  edits.insert(edits.end(), view.edits.begin(), view.edits.end());
  return {.begin = begin,
          .end = static_cast<int>(edits.size()),
          .repetition_penalty = request.params->processors.repetition_penalty,
          .is_allow_list = view.is_allow_list ? 1 : 0};
}

CudaRowEdits CudaInputBatch::AddList(const CudaGroupRequest& request,
                                     int rank) {
  ScoreEdits::Row row = {.num_generated = request.num_generated,
                         .vocab_size = shape.vocab_size};
  if (!request.histories.empty()) row.tail = request.histories[rank];
  if (!request.allowed.empty()) row.allowed = &request.allowed[rank];
  std::vector<TokenEdit> storage;
  return AddView(request, EditsOf(*request.params)->OfRow(row, &storage));
}

// All rows of logits of a request share one list if edits depend neither on
// histories nor on allowed tokens. Rows of logits without a beam have no edits.
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
      SetEdits(logits_rows.first_logits_row + rank - logits_rows.first_rank, 1,
               AddList(request, rank));
    }
    return;
  }
  if (request.params->processors.needs_history() &&
      !EditsOf(*request.params)->is_forced(request.num_generated)) {
    return AddDeviceEdits(group, request, logits_rows);
  }
  if (!last_edits_.has_value()) last_edits_ = AddList(request, 0);
  SetEdits(logits_rows.first_logits_row, logits_rows.num_logits_rows,
           *last_edits_);
}

// Requests with draft paths call this once per row of logits.
void CudaInputBatch::AddRowEdits(const CudaGroupRequest& request,
                                 int first_logits_row) {
  const std::shared_ptr<const ScoreEdits> all = EditsOf(*request.params);
  for (int i = 0; i < std::ssize(request.logits_rows); ++i) {
    const ScoreEdits::Row row = {
        .tail = request.logits_rows[i].history(),
        .num_generated = request.logits_rows[i].num_generated,
        .vocab_size = shape.vocab_size,
        .allowed = request.logits_rows[i].allowed};
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

}  // namespace espalier
