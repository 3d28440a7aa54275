#include "tests/executor/cuda/expect_batch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace espalier::testing {
namespace {

class ArrayExpectation {
 public:
  explicit ArrayExpectation(const ReadDevice& read) : read_(read) {}

  template <typename T>
  void At(const T* array, const std::vector<T>& expected) const {
    if (expected.empty()) return;
    std::vector<T> found(expected.size());
    const size_t bytes = expected.size() * sizeof(T);
    read_(array, found.data(), bytes);
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), bytes), 0);
  }

 private:
  const ReadDevice& read_;
};

void ExpectEdits(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                 const ArrayExpectation& expect) {
  if (batch.has_edits()) {
    for (int logits_row = 0; logits_row < batch.num_logits_rows();
         ++logits_row) {
      if (IsMadeByTheStep(batch, logits_row)) continue;
      expect.At<CudaRowEdits>(arrays.row_edits + logits_row,
                              {batch.row_edits[logits_row]});
    }
    expect.At(arrays.edits, batch.edits);
  }
  if (batch.has_device_edits()) {
    expect.At(arrays.edit_rows, batch.edit_rows);
    expect.At(arrays.edit_params, batch.edit_params);
  }
  if (batch.has_edited_rows()) {
    expect.At(arrays.edited_rows, batch.edited_rows);
    expect.At(arrays.rules, batch.rules);
  }
}

void ExpectChoice(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                  const ArrayExpectation& expect) {
  expect.At(arrays.select_row_groups, batch.select_row_groups);
  expect.At(arrays.params, batch.params);
  if (batch.num_draws() > 0) {
    expect.At(arrays.draw_count, std::vector{batch.num_draws()});
    expect.At(arrays.row_params, batch.row_params);
    expect.At<CudaDraw>(
        arrays.state.draws + batch.num_draws() - batch.prompt_draws.size(),
        batch.prompt_draws);
  }
  if (batch.max_gumbel_top_k > 0) {
    expect.At(arrays.gumbel_selections, batch.gumbel_selections);
    expect.At(arrays.gumbel_rows, batch.gumbel_rows);
    expect.At(arrays.gumbel_params, batch.gumbel_params);
  }
}

void ExpectLogProbs(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                    const ArrayExpectation& expect) {
  if (batch.num_logprob_queries() == 0) return;
  const CudaStepLogprobs& device = arrays.log_probs;
  expect.At<CudaLogprobCounts>(device.counts, {batch.logprob_counts[0]});
  expect.At(device.asking_groups, batch.asking_groups);
  expect.At(device.best_groups, batch.best_groups);
  expect.At(device.best_row_groups, batch.best_row_groups);
  const std::vector<CudaLogprobQuery>& known = batch.log_probs.known;
  expect.At<CudaLogprobQuery>(
      device.asked + batch.num_logprob_queries() - known.size(), known);
}

void ExpectPrompts(const CudaInputBatch& batch, const CudaBeamState& state,
                   const ArrayExpectation& expect) {
  const int first = batch.num_rows;
  expect.At(state.batch_tokens + first, batch.prompt_tokens);
  expect.At(state.batch_positions + first, batch.prompt_positions);
  expect.At(state.logits_tokens + first, batch.prompt_logits_tokens);
  expect.At(state.batch_cum_log_probs + first, batch.prompt_cum_log_probs);
}

void ExpectVerified(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                    const ArrayExpectation& expect) {
  if (batch.num_verified() == 0) return;
  expect.At(arrays.verify_count, std::vector{batch.num_verified()});
  expect.At(arrays.verify_sequences, batch.verify_sequences);
  expect.At(arrays.verify_drafts, batch.verify_drafts);
  expect.At(arrays.verify_row_sequences, batch.verify_row_sequences);
  expect.At(arrays.verify_row_params, batch.verify_row_params);
  expect.At(arrays.verify_row_edits, batch.verify_row_edits);
}

bool ExpectOneWork(const CudaAttentionWork& work,
                   const CudaAttentionArrays<DeviceArray>& arrays,
                   const ArrayExpectation& expect) {
  expect.At(arrays.items, work.items);
  expect.At<int>(arrays.item_counts,
                 {work.item_counts.begin(), work.item_counts.end()});
  expect.At(arrays.partial_indptr, work.partial_indptr);
  return work.partial_indptr.back() > 0;
}

}  // namespace

bool IsMadeByTheStep(const CudaInputBatch& batch, int logits_row) {
  return batch.has_device_edits() && batch.edit_rows[logits_row].params >= 0;
}

void ExpectBatch(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                 const ReadDevice& read) {
  const ArrayExpectation expect(read);
  const CudaBeamState& state = arrays.state;
  expect.At(state.num_groups, std::vector{batch.num_groups()});
  expect.At(state.groups, batch.groups);
  expect.At(state.selections, batch.selections);
  expect.At(state.row_groups, batch.row_groups);
  expect.At(state.eos_token_ids, batch.eos_token_ids);
  expect.At(arrays.token_tables, batch.token_tables);
  ExpectEdits(batch, arrays, expect);
  ExpectChoice(batch, arrays, expect);
  ExpectLogProbs(batch, arrays, expect);
  ExpectVerified(batch, arrays, expect);
  expect.At(arrays.cross_positions, batch.cross_positions);
  ExpectPrompts(batch, state, expect);
}

void ExpectWork(const CudaInputBatch& batch, const CudaStepArrays& arrays,
                const CudaAttentionShape& shape, const CudaStepLimits& limits,
                const CudaDevice& device, const ReadDevice& read,
                bool has_partials, bool has_cross_partials) {
  const ArrayExpectation expect(read);
  const auto plan = [&](const std::vector<CudaAttentionRow>& rows,
                        const std::vector<CudaSharedPrefix>& runs) {
    return PlanCudaAttention(rows, runs, batch.num_tokens(), shape,
                             limits.max_items, limits.max_partials, device);
  };
  EXPECT_EQ(ExpectOneWork(plan(batch.attention_rows, batch.shared_runs), arrays,
                          expect),
            has_partials);
  if (!batch.HasReaders(CudaArrayReaders::kWithSources)) return;
  EXPECT_EQ(
      ExpectOneWork(plan(batch.cross_rows, {}), arrays.cross_attention, expect),
      has_cross_partials);
}

}  // namespace espalier::testing
