// Draws on the device, compared with the host's twin.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "kernels/sample/cuda_sample.h"
#include "kernels/sample/random.h"
#include "tests/device_arrays.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/row_masks.h"
#include "tests/kernels/select/select_oracle.h"

namespace espalier {

// A row, and its draws.
struct SampledRow {
  std::vector<float> logits;
  DrawOptions options = {};  // edits are below
  std::vector<TokenEdit> edits = {};
  float cum_log_prob = 0;
  int num_draws = 1;  // samples 0, 1, ... at options.position

  DrawOptions OptionsOf(int sample) const {
    DrawOptions of = options;
    of.sample = sample;
    of.edits = edits;
    return of;
  }
};

inline std::vector<float> AsRead(const std::vector<float>& logits,
                                 DType dtype) {
  if (dtype == DType::kFloat32) return logits;
  std::vector<float> rounded = logits;
  for (float& x : rounded) x = testing::FromBFloat16(testing::ToBFloat16(x));
  return rounded;
}

// Destinations of copies of rows, and the memory after them.
struct RowCopies {
  std::vector<int> rows;
  std::vector<float> memory;
};

// Draws from all rows in one call. `max_draws` sizes the launch, and
// `compute_capability` overrides the device's, if not 0. With `by_masks`, masks
// take the place of allow lists.
inline std::vector<testing::Candidates> DrawOnDevice(
    const std::vector<SampledRow>& rows, DType dtype, int max_draws = 0,
    int compute_capability = 0, RowCopies* copies = nullptr,
    bool by_masks = false) {
  std::vector<float> logits;
  std::vector<uint16_t> narrow;
  std::vector<CudaDraw> draws;
  std::vector<int> row_params;
  std::vector<SamplingParams> params;
  std::vector<float> cum;
  testing::RowEditArrays row_edits;
  for (const SampledRow& row : rows) {
    std::vector<TokenEdit>& edits = row_edits.edits;
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    const int begin = static_cast<int>(edits.size());
    edits.insert(edits.end(), row.edits.begin(), row.edits.end());
    row_edits.rows.push_back({begin, static_cast<int>(edits.size()),
                              row.options.repetition_penalty,
                              row.options.is_allow_list});
    cum.push_back(row.cum_log_prob);
    // A row without draws has no params.
    row_params.push_back(row.num_draws > 0 ? static_cast<int>(params.size())
                                           : -1);
    params.push_back(row.options.params);
    for (int i = 0; i < row.num_draws; ++i) {
      draws.push_back({.row = static_cast<int>(row_params.size()) - 1,
                       .candidate = static_cast<int>(draws.size()),
                       .beam = i,
                       .sample = static_cast<uint32_t>(i),
                       .position = row.options.position});
    }
  }
  const int num_draws = static_cast<int>(draws.size());
  // Others, which are not to be drawn.
  while (std::ssize(draws) < max_draws) {
    draws.push_back({.candidate = static_cast<int>(draws.size()),
                     .sample = 1000,
                     .position = 1000});
  }
  for (const float x : logits) narrow.push_back(testing::ToBFloat16(x));
  auto device = CudaDevice::Open(0);
  EXPECT_TRUE(device.ok());
  if (compute_capability > 0) device->compute_capability = compute_capability;
  const auto wide_logits = testing::Upload(logits);
  const auto narrow_logits = testing::Upload(narrow);
  const auto device_draws = testing::Upload(draws);
  const auto device_num_draws = testing::Upload(std::vector{num_draws});
  const auto device_row_params = testing::Upload(row_params);
  const auto device_params = testing::Upload(params);
  const auto device_cum = testing::Upload(cum);
  if (by_masks) {
    row_edits = row_edits.WithMasks(static_cast<int>(rows[0].logits.size()));
  }
  const auto device_row_edits = testing::Upload(row_edits.rows);
  const auto device_edits = testing::Upload(row_edits.edits);
  const auto device_masks = testing::Upload(row_edits.masks);
  CudaSampleInputs in;
  in.dtype = dtype;
  in.num_rows = static_cast<int>(rows.size());
  in.vocab_size = static_cast<int>(rows[0].logits.size());
  in.max_draws = static_cast<int>(draws.size());
  in.logits = dtype == DType::kFloat32
                  ? static_cast<const void*>(wide_logits.data())
                  : narrow_logits.data();
  in.num_draws = device_num_draws.data();
  in.draws = device_draws.data();
  in.row_params = device_row_params.data();
  in.params = device_params.data();
  in.cum_log_probs = device_cum.data();
  in.row_edits = device_row_edits.data();
  in.edits = device_edits.data();
  in.masks = device_masks.data();
  const auto device_copies =
      testing::Upload(copies ? copies->memory : std::vector<float>());
  const auto copied_rows =
      testing::Upload(copies ? copies->rows : std::vector<int>());
  if (copies != nullptr) in.copies = device_copies.data();
  in.copied_rows = copied_rows.data();
  const auto scratch = DeviceBuffer<char>::Create(CudaSampleScratchBytes(in));
  EXPECT_TRUE(scratch.ok());
  EXPECT_EQ(cudaMemset(scratch->data(), 0xFF, scratch->size()), cudaSuccess);
  const auto candidates =
      testing::Upload(testing::Candidates(draws.size(), {-1, -77, kNan}));
  const auto stream = CudaStream::Create();
  EXPECT_TRUE(stream.ok());
  EXPECT_TRUE(
      CudaSample(in, candidates.data(), scratch->data(), *device, stream->get())
          .ok());
  EXPECT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
  const testing::Candidates all = testing::Download(candidates);
  if (copies != nullptr) copies->memory = testing::Download(device_copies);
  std::vector<testing::Candidates> split;
  auto next = all.begin();
  for (const SampledRow& row : rows) {
    split.emplace_back(next, next + row.num_draws);
    next += row.num_draws;
  }
  for (; next != all.end(); ++next) EXPECT_EQ(next->token, -77);
  return split;
}

// Parameters within a rounding's reach of `params`.
inline std::vector<SamplingParams> Neighbours(const SamplingParams& params) {
  std::vector<SamplingParams> all = {params};
  for (const float factor : {1 - 3e-6f, 1 + 3e-6f}) {
    SamplingParams near = params;
    if (params.top_p < 1) near.top_p *= factor;
    if (params.typical_p < 1) near.typical_p *= factor;
    near.min_p = std::min(1.0f, near.min_p * factor);
    all.push_back(near);
  }
  return all;
}

// Expected draws of a row.
class Expected {
 public:
  Expected(const SampledRow& row, DType dtype)
      : logits_(AsRead(row.logits, dtype)), row_(row) {
    const auto is_nan = [](float x) { return std::isnan(x); };
    has_nan_ = std::ranges::any_of(logits_, is_nan);
    if (has_nan_) return;
    p_ = Probabilities(row.options.params);
    max_ = *std::ranges::max_element(logits_);
    double sum = 0;
    for (const double x : logits_) sum += x == max_ ? 1 : std::exp(x - max_);
    log_sum_ = std::log(sum);
  }

  // Counts in `num_different` what only rounding explains.
  void Check(const Candidate& found, int sample, int& num_different) const {
    const TokenId expected = TokenAt(UniformOf(sample));
    ASSERT_EQ(found.beam, sample);
    if (found.token != expected) {
      ++num_different;
      ASSERT_TRUE(IsNear(found.token, UniformOf(sample)))
          << "token " << found.token << " instead of " << expected;
    }
    if (found.token < 0) {
      ASSERT_EQ(found.cum_log_prob, -kInf);
      return;
    }
    const float logit = logits_[found.token];
    const double log_prob = (logit == max_ ? 0 : logit - max_) - log_sum_;
    const float cum = row_.cum_log_prob + static_cast<float>(log_prob);
    ASSERT_TRUE(Near(found.cum_log_prob, cum,
                     2 * Tolerance(logits_.size(), std::abs(cum) + 1)))
        << found.cum_log_prob << " instead of " << cum;
  }

 private:
  std::vector<double> Probabilities(const SamplingParams& params) const {
    DrawOptions options = row_.OptionsOf(0);
    options.params = params;
    return reference::DrawProbabilities(logits_, options);
  }

  double UniformOf(int sample) const {
    return Uniform({.seed = row_.options.params.seed,
                    .sample = static_cast<uint32_t>(sample),
                    .position = row_.options.position},
                   0);
  }

  // As reference::DrawRow has it.
  TokenId TokenAt(double uniform) const {
    if (has_nan_) return kNotANumber;
    TokenId token = kNoToken;
    double sum = 0;
    for (TokenId t = 0; t < std::ssize(p_) && sum <= uniform; ++t) {
      if (p_[t] == 0) continue;
      token = t;
      sum += p_[t];
    }
    return token;
  }

  bool IsNear(TokenId token, double uniform) const {
    const SamplingParams& params = row_.options.params;
    if (token < 0 || has_nan_ || params.greedy()) return false;
    constexpr double kRounding = 3e-6;
    for (const SamplingParams& near : Neighbours(params)) {
      const std::vector<double> p = Probabilities(near);
      double before = 0;
      for (TokenId t = 0; t < token; ++t) before += p[t];
      if (p[token] > 0 && before - kRounding <= uniform &&
          uniform <= before + p[token] + kRounding) {
        return true;
      }
    }
    return false;
  }

  std::vector<float> logits_;
  const SampledRow& row_;
  bool has_nan_ = false;
  std::vector<double> p_;
  double max_ = 0;
  double log_sum_ = 0;
};

inline void ExpectEqualsTheTwin(const std::vector<SampledRow>& rows,
                                DType dtype) {
  const std::vector<testing::Candidates> found = DrawOnDevice(rows, dtype);
  int num_draws = 0;
  int num_different = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const Expected expected(rows[i], dtype);
    for (int d = 0; d < rows[i].num_draws; ++d, ++num_draws) {
      ASSERT_NO_FATAL_FAILURE(expected.Check(found[i][d], d, num_different));
    }
  }
  // Seldom does rounding decide.
  EXPECT_LE(num_different, 2 + num_draws / 100);
}

// Some of the best and some others.
inline std::vector<TokenEdit> SomeEdits(const std::vector<float>& logits,
                                        int count, int seed) {
  std::mt19937 random(seed);
  const auto some = [&](float value) { return random() % 2 ? value : 0.0f; };
  std::vector<TokenEdit> edits;
  const auto best = std::ranges::max_element(logits);
  for (int i = 0; i < count; ++i) {
    const auto token = static_cast<TokenId>(i == 0 ? best - logits.begin()
                                                   : random() % logits.size());
    edits.push_back({.token = token,
                     .banned = random() % 4 == 0,
                     .repeated = random() % 2 == 0,
                     .bias = some(0.75f),
                     .penalty = some(-1.5f)});
  }
  std::ranges::sort(edits, {}, &TokenEdit::token);
  const auto rest = std::ranges::unique(edits, {}, &TokenEdit::token);
  edits.erase(rest.begin(), rest.end());
  return edits;
}

}  // namespace espalier
