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

void ExpectEdits(const CudaInputBatch& image, const CudaStepArrays& arrays,
                 const ArrayExpectation& expect) {
  if (image.has_edits()) {
    for (int line = 0; line < image.num_logits_rows(); ++line) {
      if (IsMadeByTheStep(image, line)) continue;
      expect.At<CudaRowEdits>(arrays.row_edits + line, {image.row_edits[line]});
    }
    expect.At(arrays.edits, image.edits);
  }
  if (image.has_device_edits()) {
    expect.At(arrays.edit_rows, image.edit_rows);
    expect.At(arrays.edit_rules, image.edit_rules);
  }
}

void ExpectChoice(const CudaInputBatch& image, const CudaStepArrays& arrays,
                  const ArrayExpectation& expect) {
  expect.At(arrays.select_row_groups, image.select_row_groups);
  expect.At(arrays.params, image.params);
  if (image.num_draws() > 0) {
    expect.At(arrays.draw_count, std::vector{image.num_draws()});
    expect.At(arrays.row_params, image.row_params);
    expect.At<CudaDraw>(
        arrays.state.draws + image.num_draws() - image.prompt_draws.size(),
        image.prompt_draws);
  }
  if (image.max_perturbed > 0) {
    expect.At(arrays.perturbed_selections, image.perturbed_selections);
    expect.At(arrays.perturbed_rows, image.perturbed_rows);
    expect.At(arrays.perturbed_params, image.perturbed_params);
  }
}

void ExpectLogProbs(const CudaInputBatch& image, const CudaStepArrays& arrays,
                    const ArrayExpectation& expect) {
  if (image.num_logprob_queries() == 0) return;
  const CudaStepLogProbs& device = arrays.log_probs;
  expect.At<CudaLogProbCounts>(device.counts, {image.log_prob_counts[0]});
  expect.At(device.asking_groups, image.asking_groups);
  expect.At(device.best_groups, image.best_groups);
  expect.At(device.best_row_groups, image.best_row_groups);
  const std::vector<CudaLogprobQuery>& known = image.log_probs.known;
  expect.At<CudaLogprobQuery>(
      device.asked + image.num_logprob_queries() - known.size(), known);
}

void ExpectPrompts(const CudaInputBatch& image, const CudaBeamState& state,
                   const ArrayExpectation& expect) {
  const int first = image.num_rows;
  expect.At(state.batch_tokens + first, image.prompt_tokens);
  expect.At(state.batch_positions + first, image.prompt_positions);
  expect.At(state.logits_tokens + first, image.prompt_logits_tokens);
  expect.At(state.batch_cum_log_probs + first, image.prompt_cum_log_probs);
}

}  // namespace

bool IsMadeByTheStep(const CudaInputBatch& image, int line) {
  return image.has_device_edits() && image.edit_rows[line].rule >= 0;
}

void ExpectBatch(const CudaInputBatch& image, const CudaStepArrays& arrays,
                 const ReadDevice& read) {
  const ArrayExpectation expect(read);
  const CudaBeamState& state = arrays.state;
  expect.At(state.num_groups, std::vector{image.num_groups()});
  expect.At(state.groups, image.groups);
  expect.At(state.selections, image.selections);
  expect.At(state.row_groups, image.row_groups);
  expect.At(state.eos_token_ids, image.eos_token_ids);
  expect.At(arrays.token_tables, image.token_tables);
  ExpectEdits(image, arrays, expect);
  ExpectChoice(image, arrays, expect);
  ExpectLogProbs(image, arrays, expect);
  ExpectPrompts(image, state, expect);
}

bool ExpectWork(const CudaInputBatch& image, const CudaStepArrays& arrays,
                const CudaAttentionShape& shape, const CudaStepLimits& limits,
                const CudaDevice& device, const ReadDevice& read) {
  const CudaAttentionWork work = PlanCudaAttention(
      image.attention_rows, image.shared_runs, image.num_tokens(), shape,
      limits.max_items, limits.max_partials, device);
  const ArrayExpectation expect(read);
  expect.At(arrays.items, work.items);
  expect.At<int>(arrays.item_counts,
                 {work.item_counts.begin(), work.item_counts.end()});
  expect.At(arrays.partial_indptr, work.partial_indptr);
  return work.partial_indptr.back() > 0;
}

}  // namespace espalier::testing
