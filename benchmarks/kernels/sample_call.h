// SampleCall: a call of CudaSample with one draw a row, as benchmarks time it.
#pragma once

#include <vector>

#include "benchmarks/cuda_replays.h"
#include "kernels/sample/cuda_sample.h"

namespace espalier {

class SampleCall {
 public:
  // All rows have `params`, and `num_edits` penalties each.
  SampleCall(int num_rows, int vocab_size, DType dtype,
             const SamplingParams& params, int num_edits = 0) {
    std::vector<CudaDraw> draws;
    std::vector<CudaRowEdits> row_edits;
    std::vector<TokenEdit> edits;
    for (int row = 0; row < num_rows; ++row) {
      draws.push_back({.row = row,
                       .candidate = row,
                       .sample = static_cast<uint32_t>(row),
                       .position = 7});
      const int begin = static_cast<int>(edits.size());
      row_edits.push_back({begin, begin + num_edits, 1.2f});
      for (int i = 0; i < num_edits; ++i) {
        edits.push_back({.token = i * (vocab_size / num_edits),
                         .repeated = true,
                         .penalty = 0.5f});
      }
    }
    draws_ = Get(Upload(draws));
    num_draws_ = Get(Upload(std::vector{num_rows}));
    row_params_ = Get(Upload(std::vector<int>(num_rows, 0)));
    params_ = Get(Upload(std::vector{params}));
    cum_ = Get(Upload(std::vector<float>(num_rows)));
    row_edits_ = Get(Upload(row_edits));
    edits_ = Get(Upload(edits));
    candidates_ = Get(DeviceBuffer<Candidate>::Create(num_rows));
    inputs_.dtype = dtype;
    inputs_.num_rows = num_rows;
    inputs_.vocab_size = vocab_size;
    inputs_.max_draws = num_rows;
    inputs_.num_draws = num_draws_.data();
    inputs_.draws = draws_.data();
    inputs_.row_params = row_params_.data();
    inputs_.params = params_.data();
    inputs_.cum_log_probs = cum_.data();
    if (num_edits > 0) inputs_.row_edits = row_edits_.data();
    inputs_.edits = edits_.data();
    scratch_ = Get(DeviceBuffer<char>::Create(CudaSampleScratchBytes(inputs_)));
  }

  // In device memory; without logits.
  const CudaSampleInputs& inputs() const { return inputs_; }

  absl::Status Enqueue(const void* logits, const CudaDevice& device,
                       cudaStream_t stream) const {
    CudaSampleInputs inputs = inputs_;
    inputs.logits = logits;
    return CudaSample(inputs, candidates_.data(), scratch_.data(), device,
                      stream);
  }

 private:
  CudaSampleInputs inputs_;
  DeviceBuffer<CudaDraw> draws_;
  DeviceBuffer<int> num_draws_, row_params_;
  DeviceBuffer<SamplingParams> params_;
  DeviceBuffer<float> cum_;
  DeviceBuffer<CudaRowEdits> row_edits_;
  DeviceBuffer<TokenEdit> edits_;
  DeviceBuffer<Candidate> candidates_;
  DeviceBuffer<char> scratch_;
};

}  // namespace espalier
